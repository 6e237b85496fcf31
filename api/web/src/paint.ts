/** A label map that can be painted on, by pointer or by keys. */
import { cmapper, type NVImage, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './catalog.svelte.js';
import { type Allowed, dot, type LabelMap, line, type Normal, type Voxel } from './editing.js';
import { History } from './history.js';
import type { Color } from './palette.js';
import { labelColors, Viewer } from './viewer.js';

const SETTLED = 350; // milliseconds after a stroke

/** The largest label that can be painted: a byte holds it. */
export const LARGEST = 255;

/** A place of the canvas. */
export type Place = Pick<MouseEvent, 'offsetX' | 'offsetY'>;

export class Paint extends Viewer {
  protected history = new History();
  /** Told what can be undone and done again. */
  onStep: (can: { undo: boolean; redo: boolean }) => void = () => undefined;
  /** Which voxels a brush changes; all unless told. */
  allowed: Allowed | undefined;

  /** `changed` is called once a stroke is done. */
  constructor(private readonly changed: () => void) {
    super();
    this.opts.crosshairWidth = 0;
    this.onDrawingChanged = (action) => {
      if (action === 'draw') this.stroked();
    };
  }

  /** A stroke is done. */
  protected stroked(): void {
    if (!this.drawBitmap) return;
    this.history.push(this.drawBitmap);
    this.settle();
  }

  private timer: number | undefined;
  protected settle(): void {
    this.onStep({ undo: this.history.canUndo, redo: this.history.canRedo });
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.flush(), SETTLED);
  }
  /** Tell of a stroke now, if that is due. */
  flush(): void {
    if (this.timer === undefined) return;
    this.forget();
    this.changed();
  }
  private forget(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  override image(image: NVImage, geometry: boolean, planes: SLICE_TYPE): void {
    this.forget(); // what it waits for is another label map's
    super.image(image, geometry, planes);
  }

  /** Begin to paint on a label map of the same grid as the image. */
  protected load(labels: NVImage): void {
    if (!this.loadDrawing(labels) || !this.drawBitmap) throw new Error('this label map cannot be painted on');
    this.history.begin(this.drawBitmap);
    this.onStep({ undo: false, redo: false });
  }

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
    if (bitmap) this.replace(bitmap);
  }

  protected replace(bitmap: Uint8Array): void {
    this.drawBitmap = bitmap;
    this.drawAddUndoBitmap(); // NiiVue fills on top of its own last state
    this.refreshDrawing(true);
    this.settle();
  }

  /** A step that replaces all. */
  protected adopt(bitmap: Uint8Array): void {
    this.history.push(bitmap);
    this.replace(bitmap);
  }

  /** What is painted on. */
  protected map(bitmap: Uint8Array | null = this.drawBitmap): LabelMap | undefined {
    const [, nx = 1, ny = 1, nz = 1] = this.back?.dims ?? [];
    return bitmap ? { labels: bitmap, size: [nx, ny, nz] } : undefined;
  }

  /** The plane that a stroke began in. */
  override normal(): Normal {
    const drawn = this.opts.sliceType === SLICE_TYPE.MULTIPLANAR && this.thin < 0 ? this.drawPenAxCorSag : -1;
    return drawn >= 0 ? (2 - drawn) as Normal : super.normal();
  }

  /** A round dot: NiiVue's are squares. */
  override drawPt(x: number, y: number, z: number, label: number, bitmap: Uint8Array | null = this.drawBitmap): void {
    const map = this.map(bitmap);
    if (map) dot(map, [x, y, z], this.normal(), this.opts.penSize, label, this.allowed);
  }

  override drawPenLine(from: number[], to: number[], label: number): void {
    for (const at of line(from as unknown as Voxel, to as unknown as Voxel)) this.drawPt(...at, label);
  }

  /** NiiVue ends a stroke that leaves the picture, but tells nobody. */
  override mouseLeaveListener(): void {
    const drawn = this.opts.drawingEnabled && !Number.isNaN(this.drawPenLocation[0]);
    super.mouseLeaveListener();
    if (drawn) this.stroked();
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

  override labelAt(mm: number[]): number | undefined {
    const map = this.map();
    if (!map) return undefined;
    const [x = 0, y = 0, z = 0] = this.frac2vox(this.mm2frac([mm[0] ?? 0, mm[1] ?? 0, mm[2] ?? 0], 0, true));
    return map.labels[x + map.size[0] * (y + map.size[1] * z)];
  }

  /** How wide and high a voxel is at a place of the canvas, in pixels of the screen; 0 beside the slices. */
  scaleAt({ offsetX, offsetY }: Place): [width: number, height: number] {
    const ratio = this.uiData.dpr ?? 1;
    const dims = this.back?.dims?.slice(1, 4) ?? [];
    const at = (right: number, down: number) => [...this.canvasPos2frac([(offsetX + right) * ratio, (offsetY + down) * ratio])];
    const inside = (frac: number[]) => (frac[0] as number) >= 0;
    const here = at(0, 0);
    const along = (right: number, down: number): number => {
      const there = [at(right, down), at(-right, -down)].find(inside);
      if (!inside(here) || !there) return 0;
      const voxels = Math.max(...dims.map((count, axis) => count * Math.abs((there[axis] as number) - (here[axis] as number))));
      return voxels ? (right + down) / voxels : 0;
    };
    return [along(8, 0), along(0, 8)];
  }

  /** The label map as it is now, as NIfTI. */
  async painted(): Promise<Uint8Array> {
    const bytes = await this.saveImage({ filename: '', isSaveDrawing: true, volumeByIndex: 0 });
    if (!(bytes instanceof Uint8Array)) throw new Error('nothing has been painted');
    return new Uint8Array(bytes);
  }
}
