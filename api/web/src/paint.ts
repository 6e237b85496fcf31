/** A label map that can be painted on, by pointer or by keys. */
import { cmapper, NVImage, SLICE_TYPE } from '@niivue/niivue';
import { ARROWS, find, make, put } from './dom.js';
import { type Model, swatch } from './models.js';
import { decoded, labelColors, Viewer } from './viewer.js';

const SETTLED = 350; // milliseconds after a stroke
const UINT8 = 2; // NIfTI's code

export class Paint extends Viewer {
  /** `changed` gets the label map as NIfTI once a stroke is done. */
  constructor(private readonly panel: HTMLFieldSetElement, changed: (nifti: Blob) => void) {
    super();
    this.opts.crosshairWidth = 0;
    this.setDrawOpacity(1);
    let timer = 0;
    this.onDrawingChanged = (action) => {
      if (action !== 'draw' && action !== 'undo') return;
      clearTimeout(timer);
      timer = window.setTimeout(() => void this.painted().then(changed), SETTLED);
    };
    panel.onchange = () => this.choose();
    find('.undo', panel).onclick = () => this.drawUndo();
    find('.rest', panel).onclick = () => this.rest();
  }

  /** Show a label map, NIfTI, in a model's colours. */
  async load(bytes: Uint8Array, model: Model, geometry: boolean): Promise<void> {
    await this.image(bytes, geometry, SLICE_TYPE.AXIAL);
    Object.assign(this.volumes[0] ?? {}, { cal_min: 1e6, cal_max: 1e7 }); // black: the drawing is what is seen
    if (!this.loadDrawing(await decoded(bytes))) throw new Error('this label map cannot be painted on');
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
    this.drawLut = cmapper.makeDrawLut(labelColors(model));
    this.updateGLVolume();
    put(this.panel, {
      pens: Object.keys(model.labels).map((id) => make('label', { className: 'pen' },
        make('input', { type: 'radio', name: 'pen', value: id }), ...swatch(model, id))),
    });
    this.rest();
  }

  /** Arrow keys move a crosshair, the space bar paints there. */
  key(event: KeyboardEvent): void {
    const [rows, columns] = ARROWS[event.key] ?? [0, 0];
    if (!ARROWS[event.key] && (event.key !== ' ' || !this.opts.drawingEnabled)) return;
    event.preventDefault();
    this.opts.crosshairWidth = 1;
    const step = [this.opts.isRadiologicalConvention ? -columns : columns, columns, -rows];
    if (this.thin > 0) step[1] = -rows; // in the plane's own axes: across, then up
    step[this.thin] = 0;
    this.moveCrosshairInVox(step[0] ?? 0, step[1] ?? 0, step[2] ?? 0);
    if (event.key !== ' ') return;
    const [x = 0, y = 0, z = 0] = this.frac2vox(this.scene.crosshairPos);
    this.drawPenAxCorSag = this.opts.sliceType;
    this.drawPt(x, y, z, this.opts.penValue);
    this.refreshDrawing();
    this.drawAddUndoBitmap(false);
    this.onDrawingChanged('draw');
  }

  /** The label map as it is now. */
  private async painted(): Promise<Blob> {
    const bytes = await this.saveImage({ filename: '', isSaveDrawing: true, volumeByIndex: 0 });
    if (!(bytes instanceof Uint8Array)) throw new Error('there is nothing painted');
    return new Blob([new Uint8Array(bytes)]);
  }

  private choose(): void {
    this.opts.penSize = find('input.size', this.panel).valueAsNumber;
    const pen = this.panel.querySelector<HTMLInputElement>('[name=pen]:checked');
    this.setDrawingEnabled(pen !== null);
    if (pen) this.setPenValue(Number(pen.value), find('input.filled', this.panel).checked);
  }

  private rest(): void {
    for (const pen of this.panel.querySelectorAll<HTMLInputElement>('[name=pen]')) pen.checked = false;
    this.choose();
  }
}
