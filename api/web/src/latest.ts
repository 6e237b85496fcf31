/** What changes faster than it can be answered: one question at a time, and then the newest. */

export class Latest<T> {
  private next: { value: T } | undefined;
  private busy = false;

  /** `answer`: what is done with a value; it tells its own failures. */
  constructor(private readonly answer: (value: T) => Promise<unknown>) {}

  /** Ask; what was asked before and has not begun is dropped. */
  async ask(value: T): Promise<void> {
    this.next = { value };
    if (this.busy) return;
    this.busy = true;
    while (this.next) {
      const { value: newest } = this.next;
      this.next = undefined;
      await this.answer(newest);
    }
    this.busy = false;
  }

  /** What was asked and has not begun is not wanted any more. */
  forget(): void {
    this.next = undefined;
  }
}
