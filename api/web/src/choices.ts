/** Of a file that holds several images, such as a study: what there is, and which one was chosen. */
import type { Problem } from './service.svelte.js';

/** What is to be chosen, as the service calls it, of what. */
export interface Offer { name: 'series' | 'volume'; choices: { value: string; title: string }[] }
export type Choice = Partial<Record<Offer['name'], string>>;

const MOST_VOLUMES = 1000; // more are no list that anybody reads

/** What a refusal offers to choose from; undefined if it is about something else. */
export function offered({ code, members }: Pick<Problem, 'code' | 'members'>): Offer | undefined {
  if (code === 'several_series' && Array.isArray(members.series)) {
    const choices = members.series.map(({ uid, title }) => ({ value: String(uid), title: String(title) }));
    return { name: 'series', choices };
  }
  if (code !== 'several_volumes') return undefined;
  const count = Math.min(Number(members.volumes), MOST_VOLUMES);
  return { name: 'volume', choices: Array.from({ length: count }, (_, i) => ({ value: `${i}`, title: `${i + 1} of ${members.volumes}` })) };
}

/** What is offered after one more offer: the volumes of one series are not those of another. */
export const withOffer = (offers: Offer[], offer: Offer): Offer[] =>
  offer.name === 'series' ? [offer] : [...offers.filter(({ name }) => name !== offer.name), offer];

const made = new WeakMap<Blob, Choice>();
export const choiceOf = (file: Blob): Choice => made.get(file) ?? {};

/** Choose of a file: from now on it is sent with the choice, whatever it is sent for. */
export const choose = (file: Blob, choice: Choice): unknown => made.set(file, choice);

/** A path with what was chosen of the files that are sent to it. */
export function withChoices(path: string, parts: unknown[]): string {
  const found = Object.assign({}, ...parts.map((part) => (part instanceof Blob ? choiceOf(part) : {}))) as Choice;
  const query = new URLSearchParams(found).toString();
  return query ? `${path}${path.includes('?') ? '&' : '?'}${query}` : path;
}
