/** Pictures under a slider: a few at once, then more of them; nothing is blended. */

/** Which of `count` pictures lies nearest to a place from 0 to 1. */
export const nearest = (place: number, count: number): number =>
  Math.round(Math.min(1, Math.max(0, place)) * (count - 1));

export class Strip {
  private sheet: ImageBitmap | undefined;
  count = 0;

  /** `moved` is called when another picture may be shown. */
  constructor(private readonly slider: HTMLInputElement, private readonly moved: () => void) {
    slider.oninput = moved;
  }

  /** Fetch pictures side by side, coarse first, then finer. */
  async load(counts: number[], fetch: (count: number) => Promise<Response>): Promise<void> {
    this.slider.disabled = true;
    for (const count of counts) {
      this.sheet = await createImageBitmap(await (await fetch(count)).blob());
      this.count = count;
      this.slider.disabled = false;
      this.moved();
    }
  }

  /** Draw the picture nearest to the slider, or to a place from 0 to 1; which one it was. */
  draw(canvas: HTMLCanvasElement, place?: number): number {
    const [low, high] = [Number(this.slider.min), Number(this.slider.max)];
    const at = nearest(place ?? (this.slider.valueAsNumber - low) / (high - low), this.count);
    if (this.sheet) drawCell(canvas, this.sheet, at, this.count);
    return at;
  }
}

/** Draw one of the pictures side by side into a canvas of its size. */
export function drawCell(canvas: HTMLCanvasElement, sheet: ImageBitmap, at: number, count: number): void {
  Object.assign(canvas, { width: sheet.width / count, height: sheet.height });
  canvas.getContext('2d')?.drawImage(sheet, -at * canvas.width, 0);
}
