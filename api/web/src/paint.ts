/** A label map that can be painted on. */
import { cmapper, NVImage, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './catalog.js';
import { find, later, make } from './dom.js';
import { decoded, labelColors, Viewer } from './viewer.js';

const SETTLED = 350; // milliseconds after a stroke
const UINT8 = 2; // NIfTI's code

export class Paint {
  private constructor(readonly viewer: Viewer, private readonly panel: HTMLFieldSetElement) {}

  /** `changed` gets the label map as NIfTI once a stroke is done. */
  static async on(canvas: HTMLCanvasElement, panel: HTMLFieldSetElement, changed: (nifti: Blob) => void): Promise<Paint> {
    const paint = new Paint(await Viewer.on(canvas), panel);
    const { nv } = paint.viewer;
    nv.opts.crosshairWidth = 0;
    nv.setDrawOpacity(1);
    const settled = later(SETTLED, () => void paint.saved().then(changed));
    nv.onDrawingChanged = (action) => {
      if (action === 'draw' || action === 'undo') settled();
    };
    const size = find<HTMLInputElement>('.size', panel);
    size.addEventListener('input', () => { nv.opts.penSize = Number(size.value); });
    find('.filled', panel).addEventListener('change', () => paint.choose());
    find('.undo', panel).addEventListener('click', () => nv.drawUndo());
    find('.look', panel).addEventListener('click', () => paint.rest());
    nv.opts.penSize = Number(size.value);
    return paint;
  }

  /** Show a label map, NIfTI, in a model's colours. */
  async load(bytes: Uint8Array, model: Model, geometry = true): Promise<void> {
    const { nv } = this.viewer;
    await this.viewer.image(bytes, geometry);
    this.viewer.show(SLICE_TYPE.AXIAL);
    const back = nv.volumes[0];
    if (back) Object.assign(back, { cal_min: 1e6, cal_max: 1e7 }); // black: the drawing is what is seen
    if (!nv.loadDrawing(await decoded(bytes))) throw new Error('this label map cannot be painted on');
    this.colors(model);
    this.panel.disabled = false;
  }

  /** An empty square of `size` pixels of 1 mm, as NIfTI. */
  static blank(size: number): Uint8Array {
    const affine = [1, 0, 0, -size / 2, 0, 1, 0, -size / 2, 0, 0, 1, 0, 0, 0, 0, 1];
    return NVImage.createNiftiArray([size, size, 1], [1, 1, 1], affine, UINT8, new Uint8Array(size * size));
  }

  /** A pen for each label. */
  colors(model: Model): void {
    this.viewer.nv.drawLut = cmapper.makeDrawLut(labelColors(model));
    this.viewer.nv.updateGLVolume();
    const pens = Object.entries(model.labels).map(([id, name]) => {
      const input = make('input', { type: 'radio', name: 'pen', value: id, onchange: () => this.choose() });
      const swatch = make('span', { className: 'swatch' });
      swatch.style.backgroundColor = `rgb(${model.colors[id]?.join(' ')})`;
      return make('label', { className: 'pen' }, input, swatch, name);
    });
    find('.pens', this.panel).replaceChildren(...pens);
    this.rest();
  }

  /** The label map as it is now. */
  async saved(): Promise<Blob> {
    const bytes = await this.viewer.nv.saveImage({ filename: '', isSaveDrawing: true, volumeByIndex: 0 });
    if (!(bytes instanceof Uint8Array)) throw new Error('there is nothing painted');
    return new Blob([new Uint8Array(bytes)]);
  }

  private choose(): void {
    const chosen = this.panel.querySelector<HTMLInputElement>('input[name=pen]:checked');
    if (!chosen) return;
    const filled = find<HTMLInputElement>('.filled', this.panel).checked;
    this.viewer.nv.setDrawingEnabled(true);
    this.viewer.nv.setPenValue(Number(chosen.value), filled);
    this.viewer.nv.opts.penSize = Number(find<HTMLInputElement>('.size', this.panel).value);
  }

  private rest(): void {
    for (const pen of this.panel.querySelectorAll<HTMLInputElement>('input[name=pen]')) pen.checked = false;
    this.viewer.nv.setDrawingEnabled(false);
  }
}
