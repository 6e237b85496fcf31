/** Small things that a tab keeps over a reload. They go with the tab. */

/** Keep a text, unless corrections and paintings have filled the storage: then a reload forgets it, and nothing else fails. */
export function note(slot: string, text: string, store: Storage | undefined = globalThis.sessionStorage): void {
  try {
    store?.setItem(slot, text);
  } catch { // the quota
    store?.removeItem(slot); // what was kept before is not true any more
  }
}
