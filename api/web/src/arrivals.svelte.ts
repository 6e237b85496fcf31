/** Files on their way into projects: they go on while something else is looked at. */
import type { Upload } from './projects.js';
import { Work } from './work.svelte.js';

export class Arrivals {
  readonly work = new Work();
  /** What became of those that have come. */
  told = $state('');
  /** What an upload that was interrupted has left. */
  left = $state.raw<Upload>();
  /** How often the project has changed by them. */
  changes = $state(0);
  /** The images that got label maps last. */
  labelled = $state.raw<string[]>([]);
}

const all = new Map<string, Arrivals>();

/** Those of a project. */
export function arrivalsOf(project: string): Arrivals {
  const found = all.get(project) ?? new Arrivals();
  all.set(project, found);
  return found;
}

/** Whether leaving the page would stop any. */
export const arriving = (): boolean => [...all.values()].some(({ work }) => work.state === 'busy');
