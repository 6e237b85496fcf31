/** Corrections that are not saved yet, so that neither another image nor a reload loses one. They go with the tab, and are no more than label maps. */
import type { Unsaved } from './correction.js';
import { packed, unpacked } from './kept.js';
import { drop, held, hold, note, slotsOf, storage } from './tab.js';

/** `version`: of the label map that it corrects; 0 if there was none. */
export interface Draft extends Unsaved { version: number }

const SLOT = 'caps-med-draft:';
const WHO = 'caps-med-annotator';
const PREDICTS = 'caps-med-predicts';
const UNSEEN = 'caps-med-unseen';

/** Keep a correction of an image; false if there is no room to keep it over a reload. */
export const keepDraft = (image: string, { version, labels, slices }: Draft, store: Storage = storage()): boolean =>
  hold(SLOT + image, JSON.stringify({ version, slices, labels: packed(labels.slice()) }), store);

export function draftOf(image: string, store: Storage = storage()): Draft | undefined {
  const text = held(SLOT + image, store);
  if (text === undefined) return undefined;
  const { version, slices, labels } = JSON.parse(text);
  return { version, slices, labels: unpacked(labels) as Uint8Array };
}

export const forgetDraft = (image: string, store: Storage = storage()): void => drop(SLOT + image, store);

/** The images that have a draft. */
export const drafts = (store: Storage = storage()): string[] => slotsOf(SLOT, store).map((slot) => slot.slice(SLOT.length));

/** Who annotates in this tab. */
export const annotator = (store: Storage = storage()): string => store.getItem(WHO) ?? '';
export const keepAnnotator = (name: string, store: Storage = storage()): void => note(WHO, name, store);
/** Whether images that nobody has corrected are predicted when they are opened in this tab. */
export const predicting = (store: Storage = storage()): boolean => store.getItem(PREDICTS) !== 'no';
export const keepPredicting = (on: boolean, store: Storage = storage()): void => note(PREDICTS, on ? 'yes' : 'no', store);

/** Ids of images, which a reload keeps. */
export class Unseen {
  private readonly ids: Set<string>;
  constructor(private readonly store: Storage = storage()) {
    this.ids = new Set(JSON.parse(store.getItem(UNSEEN) ?? '[]'));
  }

  has = (image: string): boolean => this.ids.has(image);
  add = (image: string): void => this.keep(this.ids.add(image));
  delete = (image: string): void => this.keep(this.ids.delete(image));
  private keep(_changed: unknown): void {
    note(UNSEEN, JSON.stringify([...this.ids]), this.store);
  }
}
