/** Pictures side by side under a slider. */
import { unlessStopped } from './work.svelte.js';

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

type Fetch = (count: number) => Promise<ImageBitmap>;

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

  /** Fetch a few pictures side by side. */
  async load(signal: AbortSignal, fetch: Fetch): Promise<void> {
    this.count = 0;
    await this.take(this.coarse, signal, fetch);
  }

  /** Fetch all in their place. */
  refine = (signal: AbortSignal, fetch: Fetch): Promise<void> => this.take(this.fine, signal, fetch);

  private async take(count: number, signal: AbortSignal, fetch: Fetch): Promise<void> {
    [this.sheet, this.count] = [await unlessStopped(signal, fetch(count)), count];
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
