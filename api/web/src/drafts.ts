/** Corrections that are not saved yet, so that neither another image nor a reload loses one. They go with the tab, and are no more than label maps. */
import type { Unsaved } from './correction.js';
import { packed, unpacked } from './kept.js';
import { note, storage } from './tab.js';

/** `version`: of the label map that it corrects; 0 if there was none. */
export interface Draft extends Unsaved { version: number }

const SLOT = 'caps-med-draft:';
const WHO = 'caps-med-annotator';
const PREDICTS = 'caps-med-predicts';

/** Those for which the storage has no room, as it would hold them. */
const large = new Map<string, string>();

/** Whether a reload would lose any. */
export const loses = (): boolean => large.size > 0;

/** Keep a correction of an image; false if there is no room to keep it over a reload. */
export function keepDraft(image: string, { version, labels, slices }: Draft, store: Storage = storage()): boolean {
  const text = JSON.stringify({ version, slices, labels: packed(labels.slice()) });
  large.delete(image);
  try {
    store.setItem(SLOT + image, text);
    return true;
  } catch { // the quota
    store.removeItem(SLOT + image);
    large.set(image, text);
    return false;
  }
}

export function draftOf(image: string, store: Storage = storage()): Draft | undefined {
  const text = large.get(image) ?? store.getItem(SLOT + image);
  if (text === null) return undefined;
  const { version, slices, labels } = JSON.parse(text);
  return { version, slices, labels: unpacked(labels) as Uint8Array };
}

export function forgetDraft(image: string, store: Storage = storage()): void {
  large.delete(image);
  store.removeItem(SLOT + image);
}

/** The images that have a draft. */
export const drafts = (store: Storage = storage()): string[] =>
  [...large.keys(), ...Object.keys(store).filter((slot) => slot.startsWith(SLOT)).map((slot) => slot.slice(SLOT.length))];

/** Who annotates in this tab. */
export const annotator = (store: Storage = storage()): string => store.getItem(WHO) ?? '';
export const keepAnnotator = (name: string, store: Storage = storage()): void => note(WHO, name, store);
/** Whether images that nobody has corrected are predicted when they are opened in this tab. */
export const predicting = (store: Storage = storage()): boolean => store.getItem(PREDICTS) !== 'no';
export const keepPredicting = (on: boolean, store: Storage = storage()): void => note(PREDICTS, on ? 'yes' : 'no', store);
