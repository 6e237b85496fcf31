/** The tasks of models, and what this page says of each and does with it.
 * A task of another package, which is not here, has its models listed, trained and explored without a view of their own. */
import { apart } from './names.js';
import { picture, post } from './service.svelte.js';

/** What a model made of a sample: a picture, and what it says of it. */
export interface Shown { src: string; says?: string }

interface Traits {
  /** The view that uses its models. */
  view?: string;
  /** What the score on held-out data is. */
  score: string;
  /** What it is trained on, and what a training step takes several of. */
  data: string; batch: 'Crops' | 'Images';
  /** A sample as a model of this task answers it. */
  show?: (model: string, sample: Blob, signal: AbortSignal) => Promise<Shown>;
}

export const TASKS = {
  segmentation: {
    view: 'Segment', score: 'Dice', data: 'images and labels', batch: 'Crops',
    show: async (model, image, signal) => ({ src: await picture(post(`v1/models/${model}/segment?format=png`, { image }, signal), signal) }),
  },
  synthesis: {
    view: 'Synthesize', score: 'SSIM', data: 'images and labels', batch: 'Crops',
    show: async (model, labels, signal) =>
      ({ src: await picture(post(`v1/models/${model}/synthesize?format=png`, { labels, seed: 1, count: 3 }, signal), signal) }),
  },
  classification: {
    view: 'Classify', score: 'accuracy', data: 'images in one folder per class, or with a CSV list', batch: 'Images',
    show: async (model, image, signal) => {
      const { label, classes: [first] } = await (await post(`v1/models/${model}/classify`, { image }, signal)).json();
      const src = await picture(post('v1/images?format=png', { image, model }, signal), signal);
      return { src, says: `${apart(label)}, ${(100 * first.probability).toFixed(1)} %` };
    },
  },
} as const satisfies Record<string, Traits>;
export type Task = keyof typeof TASKS;

const ADDED: Traits = { score: 'score', data: 'the data of this task', batch: 'Images' };
const known = (task: string): task is Task => Object.hasOwn(TASKS, task);
/** What is said of a task, of another package or not. */
export const traitsOf = (task: string): Traits => (known(task) ? TASKS[task] : ADDED);
