/** What has been painted, step by step. */

const ROOM = 64 * 2 ** 20; // bytes of all steps

export class History {
  private steps: Uint8Array[] = [];
  private at = -1;

  constructor(private readonly room = ROOM) {}

  get canUndo(): boolean {
    return this.at > 0;
  }

  get canRedo(): boolean {
    return this.at < this.steps.length - 1;
  }

  /** Begin anew. */
  begin(bitmap: Uint8Array): void {
    [this.steps, this.at] = [[bitmap.slice()], 0];
  }

  /** One step more; what was undone is gone. The oldest steps go where there is no room. */
  push(bitmap: Uint8Array): void {
    this.steps = [...this.steps.slice(0, this.at + 1), bitmap.slice()];
    const most = Math.max(2, Math.floor(this.room / (bitmap.length || 1)));
    this.steps = this.steps.slice(-most);
    this.at = this.steps.length - 1;
  }

  /** The step before (-1) or after (1) this one, if there is one. */
  go(by: -1 | 1): Uint8Array | undefined {
    const step = this.steps[this.at + by];
    if (step) this.at += by;
    return step?.slice();
  }
}
