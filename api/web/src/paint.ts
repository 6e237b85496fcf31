/** A label map that can be painted on, by pointer or by keys. */
import { cmapper, NVImage, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './catalog.svelte.js';
import { History } from './history.js';
import type { Color } from './palette.js';
import { labelColors, Viewer } from './viewer.js';

const SETTLED = 350; // milliseconds after a stroke

/** An empty square of `size` pixels of 1 mm, as NIfTI. */
export const blank = (size: number): Blob => new Blob([new Uint8Array(
  NVImage.createNiftiArray([size, size, 1], undefined, undefined, undefined, new Uint8Array(size * size)))]);

export class Paint extends Viewer {
  private history = new History();
  /** Told what can be undone and done again. */
  onStep: (can: { undo: boolean; redo: boolean }) => void = () => undefined;

  /** `changed` gets the label map as NIfTI once a stroke is done. */
  constructor(private readonly changed: (nifti: Uint8Array) => void) {
    super();
    this.opts.crosshairWidth = 0;
    this.setDrawOpacity(1);
    this.onDrawingChanged = (action) => {
      if (action !== 'draw' || !this.drawBitmap) return;
      this.history.push(this.drawBitmap);
      this.settle();
    };
  }

  private timer = 0;
  private settle(): void {
    this.onStep({ undo: this.history.canUndo, redo: this.history.canRedo });
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.painted().then(this.changed), SETTLED);
  }

  /** Show a label map in a model's colours. */
  override async image(labels: NVImage, geometry: boolean): Promise<void> {
    clearTimeout(this.timer); // what it waits for is another label map's
    await super.image(labels, geometry, SLICE_TYPE.AXIAL);
    Object.assign(this.volumes[0] ?? {}, { cal_min: 1e6, cal_max: 1e7 }); // black: the drawing is what is seen
    if (!this.loadDrawing(labels) || !this.drawBitmap) throw new Error('this label map cannot be painted on');
    this.history.begin(this.drawBitmap);
    this.onStep({ undo: false, redo: false });
  }

  /** The drawing is the label map: nothing lies over it. */
  override labels(): void {}

  colors(labels: Model['labels'], colors: Record<string, Color>): void {
    this.drawLut = cmapper.makeDrawLut(labelColors(labels, colors));
    this.updateGLVolume();
  }

  /** Paint this label, or with '' only look; `filled`: also what a stroke encloses. */
  choose(label: string, size: number, filled: boolean): void {
    this.opts.penSize = size;
    this.setDrawingEnabled(label !== '');
    if (label) this.setPenValue(Number(label), filled);
  }

  /** The state before (-1) or after (1) this one. */
  go(by: -1 | 1): void {
    const bitmap = this.history.go(by);
    if (!bitmap) return;
    this.drawBitmap = bitmap;
    this.drawAddUndoBitmap(); // NiiVue fills on top of its own last state
    this.refreshDrawing(true);
    this.settle();
  }

  /** A round dot: NiiVue's are squares. */
  override drawPt(x: number, y: number, z: number, label: number, bitmap: Uint8Array | null = this.drawBitmap): void {
    const [, nx = 1, ny = 1, nz = 1] = this.back?.dims ?? [];
    const [size, radius] = [[nx, ny, nz], this.opts.penSize / 2];
    const [across, up] = this.plane();
    const reach = Math.floor(radius);
    for (let i = -reach; i <= reach; i++) for (let j = -reach; j <= reach; j++) {
      const at = [Math.round(x), Math.round(y), Math.round(z)];
      at[across] = (at[across] as number) + i;
      at[up] = (at[up] as number) + j;
      const inside = i * i + j * j <= radius * radius && at.every((index, axis) => index >= 0 && index < (size[axis] as number));
      if (bitmap && inside) bitmap[(at[0] as number) + nx * ((at[1] as number) + ny * (at[2] as number))] = label;
    }
  }

  override drawPenLine(from: number[], to: number[], label: number): void {
    const steps = Math.max(1, ...from.map((start, axis) => Math.abs((to[axis] as number) - start)));
    for (let i = 0; i <= steps; i++) {
      const [x = 0, y = 0, z = 0] = from.map((start, axis) => start + ((to[axis] as number) - start) * (i / steps));
      this.drawPt(x, y, z, label);
    }
  }

  /** Paint at the crosshair. */
  stamp(): void {
    if (!this.opts.drawingEnabled) return;
    const [x = 0, y = 0, z = 0] = this.frac2vox(this.scene.crosshairPos);
    this.drawPt(x, y, z, this.opts.penValue);
    this.refreshDrawing();
    this.drawAddUndoBitmap();
    this.onDrawingChanged('draw');
  }

  /** How many pixels of the screen a pixel of the image takes at a place of the canvas; 0 beside the image. */
  scaleAt({ offsetX, offsetY }: MouseEvent): number {
    const ratio = this.uiData.dpr ?? 1;
    const [across] = this.plane();
    const at = (x: number) => this.canvasPos2frac([x * ratio, offsetY * ratio])[across] as number;
    const [here, there] = [at(offsetX), [at(offsetX + 8), at(offsetX - 8)].find((frac) => frac >= 0)];
    if (here < 0 || there === undefined || here === there) return 0;
    return 8 / (Math.abs(there - here) * (this.back?.dims?.[across + 1] ?? 1));
  }

  /** The label map as it is now. */
  async painted(): Promise<Uint8Array> {
    const bytes = await this.saveImage({ filename: '', isSaveDrawing: true, volumeByIndex: 0 });
    if (!(bytes instanceof Uint8Array)) throw new Error('nothing has been painted');
    return new Uint8Array(bytes);
  }
}
