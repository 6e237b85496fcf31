/** What is looked at of an image of several channels: one of them, or a picture in its colours. */
import type { NVImage } from '@niivue/niivue';
import { coloursOf } from './colours.js';
import { apart } from './names.js';
import { decoded } from './viewer.js';
import { unlessStopped } from './work.svelte.js';

/** What the service calls it, nothing for colours, and its title. */
export type Channel = [value: string, title: string];

/** What can be looked at; nothing of an image of one channel. `names`: of its channels, if these are known. */
export function channelsOf(count: number, colour: boolean, names: readonly string[] = []): Channel[] {
  if (count < 2) return [];
  const known = colour ? ['red', 'green', 'blue'] : names.length === count ? names.map(apart) : Array.from({ length: count }, (_, i) => `${i + 1} of ${count}`);
  const each = known.map((title, i): Channel => [`${i}`, title]);
  return colour ? [['', 'in colour'], ...each] : each;
}

/** How many channels the service found in an image, and whether they are colours. */
export const foundIn = ({ headers }: Response): [count: number, colour: boolean] => [Number(headers.get('Caps-Med-Channels') ?? 1), headers.get('Caps-Med-Colour') === 'yes'];

/** The one that is wanted, or else the first. */
export const oneOf = (channels: readonly Channel[], wanted: string): string => channels.find(([value]) => value === wanted)?.[0] ?? channels[0]?.[0] ?? '';

/** What is shown of an image: its values as NIfTI and as they are drawn, and the colours of a picture. */
export interface Seen { nifti: Uint8Array; image: NVImage; colours: Uint8ClampedArray | undefined }

/** What is white in pictures in colour, whose brightness is not stretched, by NIfTI's codes of unsigned integers. */
const WHITE: Record<number, number> = { 2: 2 ** 8 - 1, 512: 2 ** 16 - 1 };

/** What is to be shown, of answers of the service; `colours`: a picture that has them. */
export async function seen(nifti: Response, colours: Promise<Response> | undefined, signal: AbortSignal): Promise<Seen> {
  const bytes = await unlessStopped(signal, nifti.bytes());
  const image = await unlessStopped(signal, decoded(bytes));
  const white = foundIn(nifti)[1] && WHITE[image.hdr?.datatypeCode ?? 0];
  if (white) Object.assign(image, { cal_min: 0, cal_max: white, robust_min: 0, robust_max: white });
  const file = colours && await unlessStopped(signal, colours);
  return { nifti: bytes, image, colours: file && await unlessStopped(signal, coloursOf(await file.blob())) };
}
