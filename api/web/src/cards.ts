/** A card for each model. */
import { allSamples, type Detail, leadTo, loadModels, type Model, sampleFile, swatch } from './catalog.js';
import { facts, find, make, put, told } from './dom.js';
import { json, picture, post } from './service.js';
import { Work } from './work.js';

export function cardsView(view: HTMLElement): void {
  const work = new Work(find('.work', view));
  view.addEventListener('shown', () => void work.run('Reading the models', async () =>
    put(view, { cards: (await loadModels()).map((model) => card(model, work)) })));
}

function card(model: Model, work: Work): HTMLElement {
  const scores = Object.entries(model.scores).map(([name, value]): [string, string] => [name, told(value)]);
  const shown = make('div');
  const sample = make('button', { type: 'button' }, 'Show a sample');
  sample.onclick = () => void work.run(`A sample of ${model.name}`, async (signal) => {
    shown.replaceChildren(await show(model, signal));
    sample.hidden = true;
  });
  const more = make('div');
  const use = leadTo(make('a', { className: 'button' }, 'Use it'), model);
  const details = make('details', {}, make('summary', {}, 'Layers and weights'), more);
  details.addEventListener('toggle', () => void work.quick(json<Detail>(`v1/models/${model.name}`).then((detail) => {
    const layers = detail.layers.map((one) => `${one.name} ${one.types} × ${one.atoms}`).join(', ');
    const { command, sha256 } = detail.weights;
    more.replaceChildren(make('p', {}, `Layers: ${layers}.`), make('p', {}, `Input: ${detail.preprocessing}.`),
      make('p', {}, make('code', {}, command)), make('p', {}, make('code', {}, `sha256 ${sha256}`)));
  })), { once: true });
  return make('article', {}, make('h2', {}, model.name),
    make('p', { className: 'note' }, `${model.task}, version ${model.version}`), make('p', {}, model.description),
    make('ul', {}, ...Object.keys(model.labels).map((id) => make('li', {}, ...swatch(model, id)))),
    make('dl', {}, ...facts([...scores, ['size', `${told(model.size_bytes / 1e6, 2)} MB`], ['licence', model.license]])),
    shown, make('div', { className: 'actions' }, use, sample),
    make('details', {}, make('summary', {}, 'Data'), make('p', {}, model.data)), details);
}

/** What the model makes of a sample: a label map in its own colours, or three images. */
async function show({ name, task }: Model, signal: AbortSignal): Promise<HTMLImageElement> {
  const makes = task === 'synthesis';
  const fit = (await allSamples()).filter((one) => (makes ? one.kind === 'labels' : one.file.endsWith('.png')));
  const sample = fit.find((one) => one.model === name) ?? fit[0];
  const input = await sampleFile(sample?.name ?? '');
  const src = await picture(makes
    ? post(`v1/models/${name}/synthesize?format=png`, { labels: input, seed: 1, count: 3 }, signal)
    : post(`v1/models/${name}/segment?format=png`, { image: input }, signal));
  return make('img', { src, alt: `${name} on: ${sample?.title}` });
}
