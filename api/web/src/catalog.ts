/** What the service has: models and samples. */
import { fill, find } from './dom.js';
import { call, json, post } from './service.js';

export type Color = [red: number, green: number, blue: number];
export interface Model {
  name: string; version: number; task: 'segmentation' | 'synthesis';
  labels: Record<string, string>; colors: Record<string, Color>; scores: Record<string, number>;
  description: string; data: string; license: string; size_bytes: number;
}
export interface Layer { name: string; types: number; atoms: number; stride: number }
export interface Detail extends Model {
  plane: string; preprocessing: string; layers: Layer[]; versions: number[];
  weights: { sha256: string; command: string };
}
export interface Sample {
  name: string; title: string; kind: 'image' | 'labels'; description: string; file: string; image_of: string | null;
}

/** A file that was dropped, chosen, or is a sample; `original`: the image that a label map is of. */
export interface Picked { content: Blob; name: string; original?: Blob }

let models: Model[] = [];
let samples: Promise<Sample[]> | undefined;
const thumbnails = new Map<string, Promise<string>>();
const files = new Map<string, Promise<Blob>>();

/** Ask for the models anew, and tell all views. */
export async function loadModels(): Promise<Model[]> {
  models = (await json<{ models: Model[] }>('v1/models')).models.sort((a, b) => a.task.localeCompare(b.task));
  document.dispatchEvent(new Event('models'));
  return models;
}

export const allModels = (): Model[] => models;

export function modelNamed(name: string): Model {
  const found = models.find((model) => model.name === name);
  if (!found) throw new Error(`there is no model ${name} any more: load this page again`);
  return found;
}

/** A select of the models of a task, or of all, kept up to date. */
export function modelSelect(view: HTMLElement, task?: Model['task']): HTMLSelectElement {
  const select = find<HTMLSelectElement>('select.model', view);
  const refill = () => fill(select, models.filter((m) => !task || m.task === task).map((m) => [m.name, m.name]));
  document.addEventListener('models', refill);
  refill();
  return select;
}

export function allSamples(): Promise<Sample[]> {
  samples ??= json<{ samples: Sample[] }>('v1/samples').then((found) => found.samples);
  samples.catch(() => { samples = undefined; });
  return samples;
}

export const sampleFile = (name: string): Promise<Blob> =>
  kept(files, name, async () => (await call(`v1/samples/${encodeURIComponent(name)}`)).blob());

/** The address of a sample's picture. */
export const thumbnail = (sample: Sample): Promise<string> =>
  kept(thumbnails, sample.name, async () => {
    const answer = await post('v1/images?format=png', { image: await sampleFile(sample.name), kind: sample.kind });
    return URL.createObjectURL(await answer.blob());
  });

function kept<T>(map: Map<string, Promise<T>>, name: string, make: () => Promise<T>): Promise<T> {
  const found = map.get(name) ?? make();
  map.set(name, found);
  found.catch(() => map.delete(name));
  return found;
}

/** Provenance headers of an answer, for people. */
export const provenance = (answer: Response): [string, string][] =>
  [...answer.headers].filter(([name]) => name.startsWith('caps-med-') && !/-(slices|geometry)$/.test(name))
    .map(([name, value]) => [name.slice('caps-med-'.length).replaceAll('-', ' '), value]);
