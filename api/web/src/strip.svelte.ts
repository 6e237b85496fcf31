/** Pictures side by side under a slider. */
import { type Say, unlessStopped, type Work } from './work.svelte.js';

/** Which of `count` pictures lies nearest to a place from 0 to 1. */
export const nearest = (place: number, count: number): number => Math.round(Math.min(1, Math.max(0, place)) * (count - 1));

/** Draw one of `count` pictures side by side into a canvas of its size. */
export const drawCell = (sheet: ImageBitmap, at: number, count: number) => (canvas: HTMLCanvasElement): void => {
  Object.assign(canvas, { width: sheet.width / count, height: sheet.height });
  canvas.getContext('2d')?.drawImage(sheet, -at * canvas.width, 0);
};

export const REACH = 0.25; // how far an atom is moved in LaLonde's figure
/** Shifts of an atom from -REACH to REACH, as the service takes them. */
export const deltas = (count: number): string =>
  Array.from({ length: count }, (_, i) => (REACH * ((2 * i) / (count - 1) - 1)).toFixed(4)).join(',');

/** Fetches so many pictures side by side. */
export type Pictures = (count: number, signal: AbortSignal, say: Say) => Promise<ImageBitmap>;

/** A few pictures, and more of them once the slider is used, which not everybody does; nothing is blended. */
export class Strip {
  /** How many pictures lie under it; none before the first have come. */
  count = $state(0);
  /** Where the slider is, from 0 to 1. */
  place = $state(0);
  private sheet = $state.raw<ImageBitmap>();

  constructor(private readonly coarse: number, readonly fine: number, place = 0) {
    this.place = place;
  }

  /** How far the picture that is shown lies from the first to the last. */
  get share(): number {
    return nearest(this.place, this.count) / (this.count - 1);
  }

  /** Whether there are fewer pictures than there could be. */
  get isCoarse(): boolean {
    return this.count === this.coarse;
  }

  /** Fetch a few pictures. */
  async load(pictures: Pictures, signal: AbortSignal, say: Say): Promise<void> {
    this.count = 0;
    await this.take(this.coarse, pictures, signal, say);
  }

  /** The slider is used: fetch all in their place, unless something else goes on. */
  refine(work: Work, what: string, pictures: Pictures): void {
    if (this.isCoarse && work.state !== 'busy') void work.run(what, (signal, say) => this.take(this.fine, pictures, signal, say));
  }

  private async take(count: number, pictures: Pictures, signal: AbortSignal, say: Say): Promise<void> {
    [this.sheet, this.count] = [await unlessStopped(signal, pictures(count, signal, say)), count];
  }

  clear(): void {
    [this.sheet, this.count] = [undefined, 0];
  }

  /** Draw the picture nearest to the slider, or to a place from 0 to 1. */
  draw = (place?: number) => (canvas: HTMLCanvasElement): void => {
    if (!this.sheet) canvas.width = 0; // empty
    else if (this.count) drawCell(this.sheet, nearest(place ?? this.place, this.count), this.count)(canvas);
  };
}
