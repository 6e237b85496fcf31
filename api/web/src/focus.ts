/** Where the keyboard's focus goes, and what is scrolled with it. */
import { tick } from 'svelte';

/** Of an element that has the focus and goes, the focus goes back to where it came from, or else to the view; for an attachment. */
export function givesBack(element: HTMLElement): () => void {
  const view = element.closest<HTMLElement>('section');
  let from: HTMLElement | null = null;
  let has = false;
  element.addEventListener('focus', ({ relatedTarget }) => { from = relatedTarget as HTMLElement | null; });
  const moved = ({ target }: FocusEvent) => { has = target === element; };
  document.addEventListener('focusin', moved);
  return () => {
    document.removeEventListener('focusin', moved);
    if (has) void tick().then(() => [from, view].forEach(focusUnlessElsewhere));
  };
}

/** Give an element the focus, where none has it. */
export function focusUnlessElsewhere(element: HTMLElement | null): void {
  if (!element?.isConnected || (document.activeElement ?? document.body) !== document.body) return;
  if (element.tabIndex < 0 && !element.hasAttribute('tabindex')) { // a view, as long as it has the focus
    element.tabIndex = -1;
    element.addEventListener('blur', () => element.removeAttribute('tabindex'), { once: true });
  }
  element.focus({ preventScroll: true });
}

/** A dialog of a view, which is modal while the view is shown: hidden, it would keep the whole page from being used; for an attachment. */
export function modal(dialog: HTMLDialogElement): () => void {
  const view = dialog.closest('section');
  const look = () => {
    if (view?.hidden) dialog.close();
    else if (!dialog.open) dialog.showModal();
  };
  const hides = new MutationObserver(look);
  if (view) hides.observe(view, { attributeFilter: ['hidden'] });
  look();
  return () => hides.disconnect();
}

const FADE = 32; // pixels at the edges beyond which there is more

/**
 * What is wider than its room fades out where there is more, and takes the focus, so that arrow keys scroll it; for an attachment.
 * `name`: of what has none of its own.
 */
export const scrolled = (name?: string) => (element: HTMLElement): (() => void) => {
  const look = () => {
    const hidden = element.scrollWidth - element.clientWidth;
    const fade = (pixels: number) => `${Math.min(FADE, Math.max(0, pixels))}px`;
    element.style.setProperty('--before', fade(element.scrollLeft));
    element.style.setProperty('--after', fade(hidden - element.scrollLeft));
    element.classList.toggle('scrolled', hidden > 0);
    for (const [attribute, value] of Object.entries({ tabindex: '0', ...(name && { role: 'group', 'aria-label': name }) })) {
      if (hidden > 0) element.setAttribute(attribute, value);
      else element.removeAttribute(attribute);
    }
  };
  const sizes = new ResizeObserver(look);
  const contents = new MutationObserver(look);
  sizes.observe(element);
  contents.observe(element, { childList: true, subtree: true, characterData: true });
  element.addEventListener('scroll', look, { passive: true });
  return () => {
    sizes.disconnect();
    contents.disconnect();
  };
};
