/** Small things that a tab keeps over a reload. They go with the tab. */

/** Where a tab may keep nothing: its storage is always full. */
class Nowhere {
  getItem(_: string): null { return null; }
  setItem(slot: string): never { throw new Error(`no storage for ${slot}`); }
  removeItem(_: string): void { /* there is nothing */ }
}
const nowhere = new Nowhere() as unknown as Storage;

/** What a tab keeps; a browser that lets this page keep nothing, such as one without cookies, throws at the word alone. */
export const storage = (): Storage => {
  try {
    return sessionStorage;
  } catch {
    return nowhere;
  }
};

/** Keep a text, unless there is no room, such as where corrections and paintings have filled the storage: then a reload forgets it, and nothing else fails. */
export function note(slot: string, text: string, store: Storage = storage()): void {
  try {
    store.setItem(slot, text);
  } catch { // the quota
    store.removeItem(slot); // what was kept before is not true any more
  }
}
