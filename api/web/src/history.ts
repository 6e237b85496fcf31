/** What has been painted, step by step. */

const ROOM = 64 * 2 ** 20; // bytes of all steps
const BYTES = 6; // of a voxel of a step: where, before, after

/** The voxels that a step has changed. */
interface Step { at: Uint32Array; before: Uint8Array; after: Uint8Array }

export class History {
  private now = new Uint8Array();
  private steps: Step[] = [];
  private done = 0;

  constructor(private readonly room = ROOM) {}

  get canUndo(): boolean {
    return this.done > 0;
  }

  get canRedo(): boolean {
    return this.done < this.steps.length;
  }

  /** Begin anew. */
  begin(bitmap: Uint8Array): void {
    [this.now, this.steps, this.done] = [bitmap.slice(), [], 0];
  }

  /** One step more, if anything has changed; what was undone is gone. The oldest steps go where there is no room. */
  push(bitmap: Uint8Array): void {
    const at = this.changed(bitmap);
    if (!at.length) return;
    const values = (of: Uint8Array) => { // `from` with a function makes a plain array first
      const found = new Uint8Array(at.length);
      for (let i = 0; i < at.length; i++) found[i] = of[at[i] as number] as number;
      return found;
    };
    this.steps = [...this.steps.slice(0, this.done), { at, before: values(this.now), after: values(bitmap) }];
    this.now.set(bitmap);
    let bytes = this.steps.reduce((sum, step) => sum + BYTES * step.at.length, 0);
    while (bytes > this.room && this.steps.length > 1) bytes -= BYTES * (this.steps.shift() as Step).at.length;
    this.done = this.steps.length;
  }

  /** Where it differs; counted first, for a plain array of as many numbers as a large volume has takes long, or ends the tab. */
  private changed(bitmap: Uint8Array): Uint32Array {
    let count = 0;
    for (let i = 0; i < bitmap.length; i++) if (bitmap[i] !== this.now[i]) count += 1;
    const at = new Uint32Array(count);
    for (let i = 0, next = 0; next < count; i++) if (bitmap[i] !== this.now[i]) at[next++] = i;
    return at;
  }

  /** The state before (-1) or after (1) this one, if there is one. */
  go(by: -1 | 1): Uint8Array | undefined {
    const step = this.steps[by < 0 ? this.done - 1 : this.done];
    if (!step) return undefined;
    step.at.forEach((index, i) => { this.now[index] = (by < 0 ? step.before : step.after)[i] as number; });
    this.done += by;
    return this.now.slice();
  }
}
