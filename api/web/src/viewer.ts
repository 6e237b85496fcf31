/** NiiVue, as this page uses it. */
import { MULTIPLANAR_TYPE, Niivue, NVImage, SHOW_RENDER, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './catalog.svelte.js';

const OWN_PLANE = [SLICE_TYPE.SAGITTAL, SLICE_TYPE.CORONAL, SLICE_TYPE.AXIAL];
/** The viewers by view, for who looks from the console, or from a test. */
const capsMed: Record<string, Viewer> = {};
Object.assign(globalThis, { capsMed });

/** The colours of a model's labels; the background lets the image through. */
export function labelColors({ labels, colors }: Model): Parameters<NVImage['setColormapLabel']>[0] {
  const I = Object.keys(labels).map(Number);
  const channel = (k: 0 | 1 | 2) => I.map((id) => colors[id]?.[k] ?? 255);
  return { R: channel(0), G: channel(1), B: channel(2), A: I.map((id) => (id ? 255 : 0)), I, labels: Object.values(labels) };
}

/** NIfTI bytes as NiiVue holds them. */
export const decoded = (url: Uint8Array): Promise<NVImage> => NVImage.loadFromUrl({ url });

export class Viewer extends Niivue {
  /** The axis along which the image is one voxel thin; -1 of a volume. */
  thin = -1;
  private ready: Promise<unknown> = Promise.resolve();

  constructor() {
    super({
      backColor: [0.055, 0.063, 0.071, 1], crosshairColor: [0.36, 0.77, 0.74, 0.9], crosshairWidth: 1,
      dragAndDropEnabled: false, isRadiologicalConvention: true, multiplanarShowRender: SHOW_RENDER.ALWAYS,
      multiplanarPadPixels: 4, multiplanarLayout: MULTIPLANAR_TYPE.GRID, fontMinPx: 15, logLevel: 'error', loadingText: '',
    });
  }

  /** Draw in a canvas of the view of this name. */
  into = (name: string) => (canvas: HTMLCanvasElement): void => {
    this.ready = this.attachToCanvas(canvas).then(() => { capsMed[name] = this; });
  };

  /** Show an image alone, in `planes`, a flat one in its own. `geometry`: whether it has a left and right. */
  async image(bytes: Uint8Array, geometry: boolean, planes: SLICE_TYPE): Promise<void> {
    const [image] = await Promise.all([decoded(bytes), this.ready]);
    this.closeDrawing();
    for (const old of [...this.volumes].reverse()) this.removeVolume(old);
    this.addVolume(image);
    this.thin = image.dimsRAS?.slice(1, 4).indexOf(1) ?? -1;
    this.setIsOrientationTextVisible(geometry);
    this.setInterpolation(!geometry);
    this.setSliceType(OWN_PLANE[this.thin] ?? planes);
  }

  /** Lay a label map over it. */
  async labels(bytes: Uint8Array, model: Model, opacity: number): Promise<void> {
    const volume = await decoded(bytes);
    if (this.volumes[1]) this.removeVolume(this.volumes[1]);
    volume.setColormapLabel(labelColors(model));
    volume.opacity = opacity;
    this.addVolume(volume);
  }

  /** Show a label of it, or let the image through. */
  toggle(id: number, shown: boolean): void {
    const colors = this.volumes[1]?.colormapLabel;
    if (colors) colors.lut[4 * (id - (colors.min ?? 0)) + 3] = shown ? 255 : 0;
    this.updateGLVolume();
  }
}
