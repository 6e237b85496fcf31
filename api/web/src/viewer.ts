/** NiiVue, as this page uses it. */
import { MULTIPLANAR_TYPE, Niivue, NVImage, SHOW_RENDER, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './models.js';

type ColorMap = Parameters<NVImage['setColormapLabel']>[0];
const OWN_PLANE = [SLICE_TYPE.SAGITTAL, SLICE_TYPE.CORONAL, SLICE_TYPE.AXIAL];

/** The colours of a model's labels; background and what is hidden let the image through. */
export function labelColors(model: Model, hidden: ReadonlySet<number> = new Set()): ColorMap {
  const I = Object.keys(model.labels).map(Number);
  const [R, G, B] = [0, 1, 2].map((k) => I.map((id) => model.colors[id]?.[k] ?? 255)) as [number[], number[], number[]];
  const A = I.map((id) => (id === 0 || hidden.has(id) ? 0 : 255));
  return { R, G, B, A, I, labels: Object.values(model.labels) };
}

/** NIfTI bytes as NiiVue holds them. */
export const decoded = (url: Uint8Array): Promise<NVImage> => NVImage.loadFromUrl({ url });

export class Viewer extends Niivue {
  /** The axis along which the image is one voxel thin; -1 of a volume. */
  thin = -1;

  constructor() {
    super({
      backColor: [0.055, 0.063, 0.071, 1], crosshairColor: [0.36, 0.77, 0.74, 0.9], crosshairWidth: 1,
      dragAndDropEnabled: false, isRadiologicalConvention: true, multiplanarShowRender: SHOW_RENDER.ALWAYS,
      multiplanarPadPixels: 4, multiplanarLayout: MULTIPLANAR_TYPE.GRID, fontMinPx: 15, logLevel: 'error', loadingText: '',
    });
  }

  /** Show an image alone, in `planes`, a flat one in its own. `geometry`: whether it has a left and right. */
  async image(bytes: Uint8Array, geometry: boolean, planes: SLICE_TYPE): Promise<void> {
    const image = await decoded(bytes);
    this.closeDrawing();
    for (const old of [...this.volumes].reverse()) this.removeVolume(old);
    this.addVolume(image);
    this.thin = image.dimsRAS?.slice(1, 4).indexOf(1) ?? -1;
    this.setIsOrientationTextVisible(geometry);
    this.setInterpolation(!geometry);
    this.setSliceType(OWN_PLANE[this.thin] ?? planes);
    this.canvas?.classList.add('used');
  }

  /** Lay a label map over it. */
  async labels(bytes: Uint8Array, model: Model, opacity: number): Promise<void> {
    const volume = await decoded(bytes);
    if (this.volumes[1]) this.removeVolume(this.volumes[1]);
    volume.setColormapLabel(labelColors(model));
    volume.opacity = opacity;
    this.addVolume(volume);
  }

  /** Show the label map without some of its labels. */
  hide(model: Model, hidden: ReadonlySet<number>): void {
    this.volumes[1]?.setColormapLabel(labelColors(model, hidden));
    this.updateGLVolume();
  }
}
