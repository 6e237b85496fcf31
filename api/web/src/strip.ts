/** Pictures on the way from one end of a slider to the other: a few at once, then more of them. */

/** One PNG with `count` pictures side by side. */
export type Fetch = (count: number, signal: AbortSignal) => Promise<Blob>;

/** Which of `count` pictures lies nearest to a position from 0 to 1. */
export const nearest = (position: number, count: number): number =>
  Math.round(Math.min(1, Math.max(0, position)) * (count - 1));

export class Strip {
  private sheet: ImageBitmap | undefined;
  /** How many pictures there are now. */
  count = 0;

  /** Fetch coarse, then finer strips; `arrived` is called after each. */
  async load(fetch: Fetch, counts: number[], signal: AbortSignal, arrived: () => void): Promise<void> {
    this.clear();
    for (const count of counts) {
      const blob = await fetch(count, signal);
      this.clear();
      this.sheet = await createImageBitmap(blob);
      this.count = count;
      arrived();
    }
  }

  clear(): void {
    this.sheet?.close();
    this.sheet = undefined;
    this.count = 0;
  }

  /** Draw the picture nearest to a position; which one it was. */
  draw(canvas: HTMLCanvasElement, position: number): number {
    if (!this.sheet) return -1;
    const at = nearest(position, this.count);
    drawCell(canvas, this.sheet, at, this.count);
    return at;
  }
}

/** Draw one picture of a strip into a canvas of its size. */
export function drawCell(canvas: HTMLCanvasElement, sheet: ImageBitmap, at: number, count: number): void {
  const width = sheet.width / count;
  if (canvas.width !== width || canvas.height !== sheet.height) Object.assign(canvas, { width, height: sheet.height });
  canvas.getContext('2d')?.drawImage(sheet, at * width, 0, width, sheet.height, 0, 0, width, sheet.height);
}
