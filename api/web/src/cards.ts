/** A card for each model. */
import { allSamples, type Detail, loadModels, type Model, sampleFile } from './catalog.js';
import { find, make, told } from './dom.js';
import { json, post } from './service.js';
import { Work } from './work.js';

export function cardsView(view: HTMLElement): void {
  const work = new Work(find('.work', view));
  view.addEventListener('shown', () => void work.run('Reading the models', async () => {
    find('.cards', view).replaceChildren(...(await loadModels()).map((model) => card(model, work)));
  }));
}

function card(model: Model, work: Work): HTMLElement {
  const labels = Object.entries(model.labels).map(([id, name]) => {
    const swatch = make('span', { className: 'swatch' });
    swatch.style.backgroundColor = `rgb(${model.colors[id]?.join(' ')})`;
    return make('li', {}, swatch, name);
  });
  const facts: [string, string][] = [
    ...Object.entries(model.scores).map(([name, value]): [string, string] => [name, told(value)]),
    ['size', `${told(model.size_bytes / 1e6, 2)} MB`], ['licence', model.license]];
  const list = make('dl', {}, ...facts.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
  const picture = make('div', { className: 'sample-picture' });
  const sample = make('button', { type: 'button', onclick: () => void work.run(`A sample of ${model.name}`, async (signal) => {
    picture.replaceChildren(await samplePicture(model, signal));
    sample.hidden = true;
  }) }, 'Show a sample');
  const more = make('details', {}, make('summary', {}, 'Layers and weights'));
  more.addEventListener('toggle', () => void json<Detail>(`v1/models/${model.name}`).then((detail) => {
    const layers = detail.layers.map((one) => `${one.name} ${one.types} × ${one.atoms}`).join(', ');
    more.replaceChildren(more.firstElementChild as Element, make('p', {}, `Layers: ${layers}.`),
      make('p', {}, `Input: ${detail.preprocessing}.`), make('p', {}, make('code', {}, detail.weights.command)),
      make('p', {}, make('code', {}, `sha256 ${detail.weights.sha256}`)));
  }).catch((error) => work.fail(error)), { once: true });
  const use = make('a', { className: 'button', href: model.task === 'synthesis' ? '#synthesize' : '#segment' }, 'Use it');
  use.addEventListener('click', () => {
    const select = find<HTMLSelectElement>(`${use.hash} select.model`);
    select.value = model.name;
    select.dispatchEvent(new Event('change'));
  });
  return make('article', {}, make('h2', {}, model.name), make('p', { className: 'note' }, `${model.task}, version ${model.version}`),
    make('p', {}, model.description), make('ul', { className: 'labels' }, ...labels), list,
    picture, make('div', { className: 'actions' }, use, sample),
    make('details', {}, make('summary', {}, 'Data'), make('p', {}, model.data)), more);
}

/** What the model makes of a sample: a label map in its own colours, or three images. */
async function samplePicture(model: Model, signal: AbortSignal): Promise<HTMLElement> {
  const makes = model.task === 'synthesis';
  const sample = (await allSamples()).find((one) => (makes ? one.kind === 'labels' : one.file.endsWith('.png')));
  const input = await sampleFile(sample?.name ?? '');
  const answer = makes
    ? await post(`v1/models/${model.name}/synthesize?format=png`, { labels: input, seed: 1, count: 3 }, signal)
    : await post(`v1/models/${model.name}/segment?format=png`, { image: input }, signal);
  return make('img', { src: URL.createObjectURL(await answer.blob()), alt: `${model.name} on: ${sample?.title}` });
}
