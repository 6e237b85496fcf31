/** Corrections that are not saved yet, so that a reload loses none. They go with the tab, and are no more than label maps. */
import type { Unsaved } from './correction.js';
import { packed, unpacked } from './kept.js';

/** `version`: of the label map that it corrects; 0 if there was none. */
export interface Draft extends Unsaved { version: number }

const SLOT = 'caps-med-draft:';
const PLACE = 'caps-med-annotating';

/** Keep a correction of an image; false if there is no room. */
export function keepDraft(image: string, { version, labels, slices }: Draft, store: Storage = sessionStorage): boolean {
  try {
    store.setItem(SLOT + image, JSON.stringify({ version, slices, labels: packed(labels.slice()) }));
    return true;
  } catch { // the quota; an older state would be worse than none
    store.removeItem(SLOT + image);
    return false;
  }
}

export function draftOf(image: string, store: Storage = sessionStorage): Draft | undefined {
  const text = store.getItem(SLOT + image);
  if (text === null) return undefined;
  const { version, slices, labels } = JSON.parse(text);
  return { version, slices, labels: unpacked(labels) as Uint8Array };
}

export const forgetDraft = (image: string, store: Storage = sessionStorage): void => store.removeItem(SLOT + image);

/** The images that have a draft. */
export const drafts = (store: Storage = sessionStorage): string[] =>
  Object.keys(store).filter((slot) => slot.startsWith(SLOT)).map((slot) => slot.slice(SLOT.length));

/** What this tab annotates, and who. */
export interface Annotating { project?: string | undefined; image?: string | undefined; author?: string | undefined }

export const annotating = (store: Storage = sessionStorage): Annotating => JSON.parse(store.getItem(PLACE) ?? '{}');
export const remember = (now: Annotating, store: Storage = sessionStorage): void => store.setItem(PLACE, JSON.stringify(now));
