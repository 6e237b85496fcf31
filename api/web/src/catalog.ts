/** What the service has, and what was given to it: models, samples, files. */
import { fill, find, make, put } from './dom.js';
import { call, json, picture, post } from './service.js';
import type { Work } from './work.js';

export type Task = 'segmentation' | 'synthesis';
export interface Model {
  name: string; version: number; task: Task; labels: Record<string, string>; scores: Record<string, number>;
  colors: Record<string, [red: number, green: number, blue: number]>;
  description: string; data: string; license: string; size_bytes: number;
}
export interface Layer { name: string; types: number; atoms: number; stride: number }
export interface Detail extends Model { preprocessing: string; layers: Layer[]; weights: { sha256: string; command: string } }

export type Kind = 'image' | 'labels';
interface Sample {
  name: string; title: string; kind: Kind; description: string; file: string; model: string; image_of: string | null;
}
/** A file to look at; `original`: the image that a label map is of. */
export interface Picked { content: Blob; name: string; original?: Blob }

/** The last image that was segmented, and its label map. */
export const handed: { image?: Picked; labels?: Picked } = {};
let models: Model[] = [];

/** Ask for the models anew, into every select of them, preloaded ones first; one may say of which task. */
export async function loadModels(): Promise<Model[]> {
  const { models: known, preloaded } = await json<{ models: Model[]; preloaded: string[] }>('v1/models');
  const ready = ({ name }: Model) => Number(preloaded.includes(name));
  models = known.sort((a, b) => ready(b) - ready(a) || a.task.localeCompare(b.task));
  for (const select of document.querySelectorAll<HTMLSelectElement>('select.model')) {
    const ofTask = models.filter((model) => model.task === (select.dataset.task ?? model.task));
    fill(select, ofTask.map((model) => model.name));
  }
  return models;
}

export function modelNamed(name: string): Model {
  const found = models.find((model) => model.name === name);
  if (!found) throw new Error(`there is no model ${name} any more: load this page again`);
  return found;
}

/** Let a link lead to the view that uses a model. */
export function leadTo(link: HTMLAnchorElement, { name, task }: { name: string; task: Task }): HTMLAnchorElement {
  link.href = task === 'synthesis' ? '#synthesize' : '#segment';
  link.onclick = async () => {
    await loadModels();
    const select = find('select.model', find(link.hash));
    select.value = name;
    select.dispatchEvent(new Event('change'));
  };
  return link;
}

/** A label's colour and name. */
export const swatch = ({ colors, labels }: Model, id: string): [HTMLElement, string] =>
  [make('span', { className: 'swatch', style: `background: rgb(${colors[id]?.join(' ')})` }), labels[id] ?? id];

/** What the capsules of a layer are called: those of a segmenter's last one stand for its labels. */
export function capsuleNames(model: Detail, { name, types }: Layer): string[] {
  const last = model.task === 'segmentation' && name === model.layers.at(-1)?.name;
  const labels = last ? Object.values(model.labels).slice(types === 1 ? 1 : 0) : [];
  return Array.from({ length: types }, (_, j) => labels[j] ?? `type ${j}`);
}

export const allSamples = async (): Promise<Sample[]> => (await json<{ samples: Sample[] }>('v1/samples')).samples;
export const sampleFile = async (name: string): Promise<Blob> => (await call(`v1/samples/${name}`)).blob();

/** Let a view take a file, or one of the samples of a kind; what is returned lists them anew. */
export function source(view: HTMLElement, work: Work, kind: () => Kind, picked: (file: Picked) => void): () => void {
  const input = find('.drop input', view);
  input.onchange = () => {
    const file = input.files?.item(0);
    if (file) picked({ content: file, name: file.name });
    input.value = ''; // the same file may be chosen again
  };
  const list = () => void work.quick(allSamples().then((all) => put(view, {
    samples: all.filter((sample) => sample.kind === kind()).map((sample) => button(sample, work, (file) => {
      const select = find('select.model', view); // a model of other samples gives way, one of the user's stays
      if (select.value !== sample.model && all.some(({ model }) => model === select.value)) {
        select.value = sample.model;
        select.dispatchEvent(new Event('change'));
      }
      picked(file);
    })),
  })));
  document.addEventListener('key', list);
  list();
  return list;
}

function button({ name, title, kind, file, description, image_of }: Sample, work: Work, picked: (file: Picked) => void): HTMLElement {
  const image = make('img', { alt: '', width: 48, height: 48 });
  void sampleFile(name).then((content) => picture(post('v1/images?format=png', { image: content, kind })))
    .then((url) => { image.src = url; }, () => undefined); // the title is enough
  const take = async () => picked({
    content: await sampleFile(name), name: file, ...(image_of && { original: await sampleFile(image_of) }),
  });
  return make('button', { type: 'button', className: 'sample', onclick: () => void work.quick(take()) },
    image, make('span', {}, make('strong', {}, title), description));
}

/** Whether left and right mean anything in what `v1/images` has answered. */
export const hasGeometry = (answer: Response): boolean => answer.headers.get('Caps-Med-Geometry') === 'yes';

/** Set the slider for the slices of what `v1/images` has answered; which one it is, of a volume. */
export function chooseSlice(view: HTMLElement, answer: Response, index?: number): number | undefined {
  const count = Number(answer.headers.get('Caps-Med-Slices'));
  const at = index ?? Math.floor(count / 2);
  find('.slices', view).hidden = count < 2;
  find('.slices output', view).textContent = `${at + 1} of ${count}`;
  Object.assign(find('.slices input', view), { max: count - 1, value: at });
  return count > 1 ? at : undefined;
}
