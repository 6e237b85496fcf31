/** NiiVue, as this page uses it. */
import { MULTIPLANAR_TYPE, Niivue, NVImage, SHOW_RENDER, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './catalog.js';

type ColorMap = Parameters<NVImage['setColormapLabel']>[0];
type Place = { string: string; values: { value: number }[] };

/** The colours of a model's labels; background and what is hidden let the image through. */
export function labelColors(model: Model, hidden: ReadonlySet<number> = new Set()): ColorMap {
  const ids = Object.keys(model.labels).map(Number);
  const channel = (k: 0 | 1 | 2) => ids.map((id) => model.colors[id]?.[k] ?? 255);
  const alpha = ids.map((id) => (id === 0 || hidden.has(id) ? 0 : 255));
  return { R: channel(0), G: channel(1), B: channel(2), A: alpha, I: ids, labels: ids.map((id) => model.labels[id] ?? '') };
}

/** NIfTI bytes as NiiVue holds them. */
export const decoded = (bytes: Uint8Array): Promise<NVImage> =>
  NVImage.loadFromUrl({ url: bytes, name: bytes[0] === 0x1f ? 'image.nii.gz' : 'image.nii' });

export class Viewer {
  readonly nv = new Niivue({
    backColor: [0.055, 0.063, 0.071, 1], crosshairColor: [0.36, 0.77, 0.74, 0.9], crosshairWidth: 1,
    dragAndDropEnabled: false, isRadiologicalConvention: true, multiplanarShowRender: SHOW_RENDER.ALWAYS,
    multiplanarPadPixels: 4, multiplanarLayout: MULTIPLANAR_TYPE.GRID, fontMinPx: 15, logLevel: 'error', loadingText: '',
  });
  flat = true;
  private planes = SLICE_TYPE.MULTIPLANAR;

  /** A viewer on a canvas. */
  static async on(canvas: HTMLCanvasElement, place?: (text: string) => void): Promise<Viewer> {
    const viewer = new Viewer();
    if (place) viewer.nv.onLocationChange = (found) => place((found as Place).string);
    await viewer.nv.attachToCanvas(canvas);
    return viewer;
  }

  /** Show an image alone. `geometry`: whether left and right mean anything. */
  async image(bytes: Uint8Array, geometry = true): Promise<void> {
    const volume = await decoded(bytes);
    this.nv.closeDrawing();
    for (const old of [...this.nv.volumes].reverse()) this.nv.removeVolume(old);
    this.nv.addVolume(volume);
    const sizes = volume.dimsRAS ?? [];
    this.flat = sizes.slice(1, 4).includes(1);
    this.nv.setIsOrientationTextVisible(geometry);
    this.nv.setInterpolation(!geometry);
    this.show(this.planes);
  }

  /** Lay a label map over it. */
  async labels(bytes: Uint8Array, model: Model, opacity: number): Promise<void> {
    const volume = await decoded(bytes);
    if (this.nv.volumes[1]) this.nv.removeVolume(this.nv.volumes[1]);
    volume.setColormapLabel(labelColors(model));
    volume.opacity = opacity;
    this.nv.addVolume(volume);
  }

  hide(model: Model, hidden: ReadonlySet<number>): void {
    this.nv.volumes[1]?.setColormapLabel(labelColors(model, hidden));
    this.nv.updateGLVolume();
  }

  /** A volume in the planes asked for; a flat image in its own. */
  show(planes: SLICE_TYPE): void {
    this.planes = planes;
    const thin = this.nv.volumes[0]?.dimsRAS?.indexOf(1, 1) ?? -1;
    const own = { 1: SLICE_TYPE.SAGITTAL, 2: SLICE_TYPE.CORONAL, 3: SLICE_TYPE.AXIAL }[thin];
    this.nv.setSliceType(own ?? planes);
  }
}
