/** What one view hands to the others. */
import type { Picked } from './catalog.js';

/** The last image that was segmented, and its label map. */
export const handed: { image?: Picked; labels?: Picked } = {};

/** Hand something over, and tell the views that show it. */
export function hand(what: typeof handed): void {
  Object.assign(handed, what);
  document.dispatchEvent(new Event('handed'));
}
