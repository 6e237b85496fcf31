/** What is told where a picture is, or would be: on a narrow screen the rest of a view lies far below. */
import { offered } from './choices.js';
import { Problem } from './service.svelte.js';
import type { Work } from './work.svelte.js';

type Told = Pick<Work, 'state' | 'said' | 'error'>;

/** What goes on, or what went wrong; nothing once it is done. */
export function toldOf({ state, said, error }: Told): string {
  if (state === 'busy') return said;
  if (state !== 'failed') return '';
  const offer = error instanceof Problem ? offered(error) : undefined;
  return offer ? toChoose(offer) : [said, error?.message].filter(Boolean).join(': ');
}

/** What is to be done where a file holds several images. */
export const toChoose = ({ name }: { name: string }): string => `This file holds several ${name === 'series' ? 'series' : 'volumes'}: choose one.`;
