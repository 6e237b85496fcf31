/** A label map that can be painted on, by pointer or by keys. */
import { cmapper, NVImage, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './catalog.svelte.js';
import { decoded, labelColors, Viewer } from './viewer.js';

const SETTLED = 350; // milliseconds after a stroke

/** Rows and columns that an arrow key goes. */
export const ARROWS: Record<string, [rows: number, columns: number]> =
  { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** An empty square of `size` pixels of 1 mm, as NIfTI. */
export const blank = (size: number): Blob => new Blob([new Uint8Array(
  NVImage.createNiftiArray([size, size, 1], undefined, undefined, undefined, new Uint8Array(size * size)))]);

export class Paint extends Viewer {
  /** `changed` gets the label map as NIfTI once a stroke is done. */
  constructor(changed: (nifti: Blob) => void) {
    super();
    this.opts.crosshairWidth = 0;
    this.setDrawOpacity(1);
    let timer = 0;
    this.onDrawingChanged = (action) => {
      if (action !== 'draw' && action !== 'undo') return;
      clearTimeout(timer);
      timer = window.setTimeout(() => void this.painted().then(changed), SETTLED);
    };
  }

  /** Show a label map, NIfTI, in a model's colours. */
  async load(bytes: Uint8Array, model: Model, geometry: boolean): Promise<void> {
    await this.image(bytes, geometry, SLICE_TYPE.AXIAL);
    Object.assign(this.volumes[0] ?? {}, { cal_min: 1e6, cal_max: 1e7 }); // black: the drawing is what is seen
    if (!this.loadDrawing(await decoded(bytes))) throw new Error('this label map cannot be painted on');
    this.colors(model);
  }

  colors(model: Model): void {
    this.drawLut = cmapper.makeDrawLut(labelColors(model));
    this.updateGLVolume();
  }

  /** Paint this label, or with '' only look; `filled`: also what a stroke encloses. */
  choose(label: string, size: number, filled: boolean): void {
    this.opts.penSize = size;
    this.setDrawingEnabled(label !== '');
    if (label) this.setPenValue(Number(label), filled);
  }

  /** Arrow keys move a crosshair, the space bar paints there. */
  key = (event: KeyboardEvent): void => {
    const step = ARROWS[event.key] ?? (event.key === ' ' && this.opts.drawingEnabled ? [0, 0] : undefined);
    if (!step) return;
    event.preventDefault();
    const [across, up] = [0, 1, 2].filter((axis) => axis !== this.thin) as [number, number];
    const by: [number, number, number] = [0, 0, 0];
    [by[across], by[up]] = [across ? step[1] : -step[1], -step[0]]; // the patient's right is on the left
    this.opts.crosshairWidth = 1;
    this.moveCrosshairInVox(...by);
    if (event.key !== ' ') return;
    const [x = 0, y = 0, z = 0] = this.frac2vox(this.scene.crosshairPos);
    this.drawPenAxCorSag = this.opts.sliceType;
    this.drawPt(x, y, z, this.opts.penValue);
    this.refreshDrawing();
    this.drawAddUndoBitmap();
    this.onDrawingChanged('draw');
  };

  /** The label map as it is now. */
  private async painted(): Promise<Blob> {
    const bytes = await this.saveImage({ filename: '', isSaveDrawing: true, volumeByIndex: 0 });
    if (!(bytes instanceof Uint8Array)) throw new Error('nothing has been painted');
    return new Blob([new Uint8Array(bytes)]);
  }
}
