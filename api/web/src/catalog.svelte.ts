/** What the service has, and what was given to it: models, samples, files. */
import { type Color, colorsOf, type Palette } from './palette.js';
import { json, Problem } from './service.svelte.js';
import { TASKS, type Task } from './tasks.js';

export interface Model {
  name: string; version: number; task: string; takes: Kind; channels: string[]; labels: Record<string, string>; scores: Record<string, number>;
  colors: Record<string, Color>;
  description: string; input_description: string; data: string; license: string; size_bytes: number;
  /** What refines its answers unless asked not to. */
  refine: string | null;
  /** Whether it averages several networks, from which no training can start. */
  ensemble: boolean;
  /** Views over which test-time augmentation averages; 1 where it refuses that. */
  tta_views: number;
}
export interface Layer { name: string; types: number; atoms: number; stride: number }
export interface Detail extends Model {
  plane: string; preprocessing: string; temperature: number | null; layers: Layer[]; reconstructs: boolean; weights: { sha256: string; command: string };
}

export type Kind = 'image' | 'labels';
export interface Sample {
  name: string; title: string; kind: Kind; description: string; file: string; model: string; image_of: string | null;
}
/** A file to look at; `original`: the image that a label map is of, `labels`: what its ids mean, `channels`: the files of all channels. */
export interface Picked { content: Blob; name: string; original?: Blob; labels?: Model['labels']; channels?: Blob[] }

const NONE_CHOSEN = Object.fromEntries(Object.keys(TASKS).map((task) => [task, ''])) as Record<Task, string>;

/** Which of some models to begin with: the first one that the service preloads, else the first that a sample suits, else the first. */
export function toBeginWith(models: readonly Model[], preloaded: readonly string[], samples: readonly Pick<Sample, 'model'>[]): string | undefined {
  const preferred = [...preloaded, ...samples.map(({ model }) => model)];
  return preferred.find((name) => models.some((one) => one.name === name)) ?? models[0]?.name;
}

class Catalog {
  /** Preloaded ones first. */
  models = $state.raw<Model[]>([]);
  private preloaded: string[] = [];
  samples = $state.raw<Sample[]>([]);
  /** The model chosen for each task. */
  chosen = $state<Record<Task, string> & Record<string, string>>({ ...NONE_CHOSEN });
  /** The last image that was segmented, its label map, and a label map to synthesize from. */
  image = $state.raw<Picked>();
  labels = $state.raw<Picked>();
  passed = $state.raw<Picked>();
  /** The colours of labels, in every view. */
  palette = $state<Palette>('model');

  private asked = 0;
  private told = 0;
  /** An answer that comes late does not replace that to a newer question. */
  async load(): Promise<void> {
    this.asked += 1;
    const now = this.asked;
    const { models, preloaded } = await json<{ models: Model[]; preloaded: string[] }>('v1/models');
    if (!this.samples.length) this.samples = (await json<{ samples: Sample[] }>('v1/samples')).samples;
    if (now < this.told) return;
    this.told = now;
    const ready = ({ name }: Model) => Number(preloaded.includes(name));
    this.preloaded = preloaded;
    this.models = models.sort((a, b) => ready(b) - ready(a) || a.task.localeCompare(b.task));
  }

  /** The models of a task, or all, and the one to begin with. */
  of(task?: Task): { names: string[]; first: string } {
    const models = this.models.filter((one) => one.task === (task ?? one.task));
    return { names: models.map(({ name }) => name), first: toBeginWith(models, this.preloaded, this.samples) ?? '' };
  }

  /** Choose a model of a task that means the same by these labels, if there is one and the chosen one does not. */
  suit(task: Task, labels: Model['labels']): void {
    const suits = (one: Model | undefined) => one && !otherwise(labels, one.labels);
    const found = [this.find(this.chosen[task]), ...this.models.filter((one) => one.task === task)].find(suits);
    if (found) this.chosen[task] = found.name;
  }

  colors = (model: Pick<Model, 'labels' | 'colors'>): Record<string, Color> => colorsOf(model, this.palette);

  find = (name: string): Model | undefined => this.models.find((model) => model.name === name);

  model(name: string): Model {
    if (!name) throw new Problem('no model', 'The service has no model for this task. Train one, or start the service with a model repository that contains one: caps-med serve --models DIR');
    const found = this.find(name);
    if (!found) throw new Error(`there is no model ${name} any more: reload this page`);
    return found;
  }
}
export const catalog = new Catalog();

/** The first id by which labels and those of a model do not mean the same. */
export const otherwise = (labels: Model['labels'], known: Model['labels']): string | undefined =>
  Object.keys(labels).find((id) => labels[id] !== known[id]);

/** What the capsules of a layer are called: those of the last one of a segmenter or classifier stand for its labels. */
export function capsuleNames(model: Detail, { name, types }: Layer): string[] {
  const last = model.takes === 'image' && name === model.layers.at(-1)?.name;
  const labels = last ? Object.values(model.labels).slice(types === 1 ? 1 : 0) : [];
  if (labels.length !== types) labels.length = 0; // capsules that are no classes
  return Array.from({ length: types }, (_, j) => labels[j] ?? `type ${j}`);
}

/** What a segmentation says of one label. */
export interface Measures { label: number; name: string; volume: number; fraction: number; objects: number; confidence: number | null }

/** Whether left and right mean anything in what `v1/images` has answered. */
export const hasGeometry = (answer: Response): boolean => answer.headers.get('Caps-Med-Geometry') === 'yes';

/** Which slice is looked at, of how many; `slice`: what to ask the service for, of a volume. */
export interface Slices { count: number; at: number; slice?: number }

/** The slices of what `v1/images` has answered; the middle one unless told. */
export function slicesOf(answer: Response, index?: number): Slices {
  const count = Number(answer.headers.get('Caps-Med-Slices'));
  const at = index ?? Math.floor(count / 2);
  return { count, at, ...(count > 1 && { slice: at }) };
}

/** Files in the order of a model's channels: by the channel that each one's name tells, else by name. */
export function inOrder<F extends { name: string }>(files: readonly F[], channels: readonly string[]): F[] {
  const named = new Map<number, F>();
  for (let before = -1; before < named.size;) { // a file that only one channel can be leaves fewer for the others: T1 after T1ce
    before = named.size;
    for (const [i, channel] of channels.entries()) {
      const found = files.filter((file) => file.name.toLowerCase().includes(channel.toLowerCase()) && ![...named.values()].includes(file));
      if (found[0] && found.length === 1 && !named.has(i)) named.set(i, found[0]);
    }
  }
  const told = channels.flatMap((_, i) => named.get(i) ?? []);
  return told.length === files.length ? told : [...files].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
}

/** A date and time that no country reads as another one. */
export const when = (time: string): string => new Date(time).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' });

/** A number as people read it. */
export const formatted = (value: number, maximumSignificantDigits = 3): string =>
  value.toLocaleString('en', { maximumSignificantDigits });

/** A score, with as many digits as tell it from a perfect one. */
export const scoreText = (value: number): string => {
  const digits = value < 1 ? Math.max(3, Math.ceil(-Math.log10(1 - value))) : 3;
  return formatted(value, Math.min(digits, 9));
};
