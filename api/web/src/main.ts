/** The page: five views, one at a time. */
import { capsulesView } from './capsules.js';
import { cardsView } from './cards.js';
import { loadModels } from './catalog.js';
import { find } from './dom.js';
import { segmentView } from './segment.js';
import { forgetKey, holdsKey } from './service.js';
import { synthesizeView } from './synthesize.js';
import { trainView } from './train.js';

const views = [...document.querySelectorAll<HTMLElement>('main > section')];
const began = new Map<string, Promise<unknown>>();

/** What each view does once, when it is first shown. */
const begin: Record<string, (view: HTMLElement) => unknown> = {
  segment: segmentView, synthesize: synthesizeView, capsules: capsulesView, train: trainView, models: cardsView,
};

/** Show the view that the address names. */
async function show(): Promise<void> {
  const view = views.find((one) => `#${one.id}` === location.hash) ?? (views[0] as HTMLElement);
  for (const one of views) one.hidden = one !== view;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.getAttribute('href') === `#${view.id}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${view.getAttribute('aria-label')} · caps_med`;
  if (!began.has(view.id)) began.set(view.id, Promise.resolve(begin[view.id]?.(view)));
  Object.assign(window, { capsMed: { ...(window as { capsMed?: object }).capsMed, [view.id]: await began.get(view.id) } });
  view.dispatchEvent(new Event('shown'));
}

async function greet(): Promise<void> {
  const said = find('#service');
  find('#lock').hidden = !holdsKey();
  try {
    const { version } = await (await fetch('healthz')).json();
    said.textContent = `${version} · research only`;
    await loadModels();
  } catch (error) {
    said.textContent = error instanceof Error ? error.message : 'The service does not answer.';
  }
}

for (const type of ['dragover', 'drop']) document.addEventListener(type, (event) => event.preventDefault());
find('#lock').addEventListener('click', () => {
  forgetKey();
  location.reload();
});
document.addEventListener('key', () => void greet());
addEventListener('hashchange', () => void show());
void greet();
void show();
