/** The models that the service has. */
import { fill, find, make } from './dom.js';
import { json } from './service.js';

export type Task = 'segmentation' | 'synthesis';
export interface Model {
  name: string; version: number; task: Task; labels: Record<string, string>;
  colors: Record<string, [red: number, green: number, blue: number]>; scores: Record<string, number>;
  description: string; data: string; license: string; size_bytes: number;
}
export interface Layer { name: string; types: number; atoms: number; stride: number }
export interface Detail extends Model {
  preprocessing: string; layers: Layer[]; weights: { sha256: string; command: string };
}

let models: Model[] = [];

/** Ask for the models anew, into every select of them; one may say of which task. */
export async function loadModels(): Promise<Model[]> {
  models = (await json<{ models: Model[] }>('v1/models')).models.sort((a, b) => a.task.localeCompare(b.task));
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
export function swatch(model: Model, id: string): [HTMLElement, string] {
  const style = `background: rgb(${model.colors[id]?.join(' ')})`;
  return [make('span', { className: 'swatch', style }), model.labels[id] ?? id];
}

/** What the capsules of a layer are called: those of a segmenter's last one stand for its labels. */
export function capsuleNames(model: Detail, { name, types }: Layer): string[] {
  const last = model.task === 'segmentation' && name === model.layers.at(-1)?.name;
  const labels = last ? Object.values(model.labels).slice(types === 1 ? 1 : 0) : [];
  return Array.from({ length: types }, (_, j) => labels[j] ?? `type ${j}`);
}
