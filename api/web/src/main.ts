/** The page: five views, one at a time. */
import { capsulesView } from './capsules.js';
import { cardsView } from './cards.js';
import { loadModels } from './catalog.js';
import { find, put } from './dom.js';
import { segmentView } from './segment.js';
import { forgetKey, holdsKey } from './service.js';
import { synthesizeView } from './synthesize.js';
import { trainView } from './train.js';

const views = [...document.querySelectorAll<HTMLElement>('main > section')];

/** What each view does once, when it is first shown. */
const begin: Record<string, ((view: HTMLElement) => unknown) | undefined> = {
  segment: segmentView, synthesize: synthesizeView, capsules: capsulesView, train: trainView, models: cardsView,
};
/** NiiVue of each view, for who looks from the console, or from a test. */
const capsMed: Record<string, unknown> = {};

/** Show the view that the address names. */
async function show(): Promise<void> {
  const view = views.find((one) => `#${one.id}` === location.hash) ?? (views[0] as HTMLElement);
  for (const one of views) one.hidden = one !== view;
  for (const link of document.querySelectorAll<HTMLAnchorElement>('nav a')) {
    link.ariaCurrent = link.hash === `#${view.id}` ? 'page' : null;
  }
  document.title = `${view.ariaLabel} · caps_med`;
  const first = begin[view.id];
  delete begin[view.id];
  if (first) capsMed[view.id] = await first(view);
  view.dispatchEvent(new Event('shown'));
}

async function greet(): Promise<void> {
  find('#lock').hidden = !holdsKey();
  try {
    const { version } = await (await fetch('healthz')).json();
    put(document, { service: `${version} · research only` });
    await loadModels();
  } catch (error) {
    put(document, { service: error instanceof Error ? error.message : 'The service does not answer.' });
  }
}

/** A file dropped anywhere is chosen in the view that is shown; on the way down, for NiiVue stops what reaches it. */
function dropped(event: DragEvent): void {
  event.preventDefault();
  document.body.classList.toggle('over', event.type === 'dragover');
  const input = document.querySelector<HTMLInputElement>('section:not([hidden]) .drop input');
  const files = event.dataTransfer?.files;
  if (event.type !== 'drop' || !input || !files?.length) return;
  input.files = files;
  input.dispatchEvent(new Event('change'));
}

for (const type of ['dragover', 'dragleave', 'drop'] as const) document.addEventListener(type, dropped, true);
find('#lock').onclick = () => {
  forgetKey();
  location.reload();
};
document.addEventListener('key', () => void greet());
Object.assign(window, { capsMed });
addEventListener('hashchange', () => void show());
void greet();
void show();
