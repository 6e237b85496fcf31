/** Projects of the service: images that are annotated, and what is learned from them. */
import type { Point } from './curve.js';
import { apart } from './names.js';
import type { Color } from './palette.js';
import { call, json, Problem, post } from './service.svelte.js';
import { type Image as Dropped, imagesOf, sentOf } from './together.js';

export type State = 'unlabelled' | 'predicted' | 'corrected';
export interface Project {
  id: string; name: string; model: string; start_model: string; trained_model: string; labels: Record<string, string>; colors: Record<string, Color>;
  /** The id of what is not labelled, where images are labelled in part. */
  ignore_label: number | null;
  counts: Record<State, number>; scoring: { scored: number; total: number }; rounds: number; job: string | null;
}
export interface Image {
  id: string; name: string; state: State; version: number; author: string | null; uncertainty: number | null;
  held_out: boolean; held_by: string | null;
  /** Whose image it is, as the one who added it said. */
  patient: string | null;
  /** What was doubtful when its file was read. */
  warnings: string[];
  /** Millimetres; null of a picture, which has no geometry. */
  spacing: number[] | null;
  format: string; shape: number[]; channels: number;
}
export interface Version { version: number; kind: 'prediction' | 'correction' | 'upload'; author: string | null; model: string | null; created: string; parent: number | null; changed: number | null; warnings: string[] }
/** The bounds are missing where there are too few images for them. */
interface Interval { mean: number; low: number | null; high: number | null }
export interface Round {
  round: number; job: string; state: 'training' | 'evaluating' | 'finished' | 'failed' | 'cancelled'; corrected: number; trained_on: number; held_out: number;
  model: string | null; accepted: boolean | null; message: string | null;
  dice: Record<string, Interval> | null; before: Record<string, Interval> | null; changed: number | null;
}
export const STRATEGIES = { uncertainty: 'most uncertain', diversity: 'most different', random: 'at random' };
export type Strategy = keyof typeof STRATEGIES;

const PAGE = 200; // images in a list
const MOST_FILES = 15; // of one upload
const MOST_SKIPPED = 200; // images that are not to be the next one

const at = (project: string, rest = '') => `v1/projects/${project}${rest}`;
/** What is undefined or empty is left out, a list gives each of its elements. */
const query = (fields: Record<string, string | number | readonly string[] | undefined>): string =>
  new URLSearchParams(Object.entries(fields).flatMap(([name, value]) => [value].flat().filter((one) => one).map((one) => [name, `${one}`]))).toString();

/** All elements of a list that comes in pages. */
async function all<T>(path: string, name: string, signal?: AbortSignal): Promise<T[]> {
  const found: T[] = [];
  for (let after: string | null = ''; after !== null;) {
    const page: Record<string, T[]> & { next: string | null } = await json(`${path}?${query({ limit: PAGE, after })}`, signal);
    found.push(...(page[name] ?? []));
    after = page.next;
  }
  return found;
}

/** How many images a project has. */
export const sizeOf = ({ counts }: Project): number => Object.values(counts).reduce((sum, count) => sum + count, 0);

export const projects = (): Promise<Project[]> => all('v1/projects', 'projects');
export const project = (id: string): Promise<Project> => json(at(id));
export const images = (id: string): Promise<Image[]> => all(at(id, '/images'), 'images');
export const remove = (id: string): Promise<Response> => call(at(id), { method: 'DELETE' });
export const create = async (fields: object): Promise<Project> => (await post('v1/projects', fields)).json();

/** Files whose images are to be added, all of a patient if one is given. `known`: the images of the project but those that an interrupted upload of these files has added without an answer. */
export interface Upload { files: readonly File[]; patient: string; known: Set<string> }

/** Add the images of some files, a few at a time; `told`: how many are done, of how many, and once that is known which are left. Says what keeps some from being added; the others are. */
export async function upload(id: string, { files, patient, known }: Upload, again: boolean, signal: AbortSignal, told: (done: number, all: number, left?: Dropped[]) => void): Promise<{ all: number; not: string[] }> {
  told(0, files.length);
  const { images: found, not } = await imagesOf(files, signal);
  const count = found.length + not.length;
  const left = new Set(found);
  const tell = () => told(found.length - left.size, count, [...left]);
  const done = (some: Dropped[]) => {
    for (const one of some) left.delete(one);
    tell();
  };
  const send = async (some: Dropped[]): Promise<void> => {
    try {
      const { images } = await (await post(at(id, '/images'), { images: await Promise.all(some.map(sentOf)), patient: patient || undefined }, signal)).json();
      for (const image of images as Image[]) known.add(image.id);
      done(some);
    } catch (error) {
      if (count === 1 || !(error instanceof Problem && error.ofFile)) throw error;
      const [first, ...others] = some;
      if (first && !others.length) {
        not.push(error.message.includes(first.name) ? error.message : `${apart(first.name)}: ${error.message}`);
        done(some);
      } else for (const one of some) await send([one]); // the service takes all of them or none
    }
  };
  if (again) done(cameOf(found, (await all<Image>(at(id, '/images'), 'images', signal)).filter((one) => !known.has(one.id))));
  else tell();
  const images = [...left];
  for (let sent = 0, some: Dropped[] = []; sent < images.length; sent += some.length) {
    const next = images.slice(sent, sent + MOST_FILES);
    const series = next.findIndex((one) => one.files.length > 1); // which is sent by itself
    some = series < 0 ? next : next.slice(0, series || 1);
    await send(some);
  }
  return { all: count, not };
}

/** Those of some images that have come, by their names. */
function cameOf(images: readonly Dropped[], there: readonly Image[]): Dropped[] {
  const names = there.map(({ name }) => name);
  return images.filter(({ name }) => {
    const at = names.indexOf(name);
    if (at >= 0) names.splice(at, 1);
    return at >= 0;
  });
}

/** The image to look at next, none of `skip`, and how it was chosen; undefined if all are corrected, or others have them. */
export async function next(id: string, strategy: Strategy, author: string, skip: readonly string[]): Promise<{ image: Image; strategy: Strategy } | undefined> {
  const answer = await call(`${at(id, '/next')}?${query({ strategy, author, skip: skip.slice(0, MOST_SKIPPED) })}`);
  return answer.status === 204 ? undefined : answer.json();
}

/** The routes of one image. */
export class Annotated {
  private readonly path: string;
  constructor(id: string, image: string) {
    this.path = at(id, `/images/${image}`);
  }

  /** As NIfTI; `channel`: that one of several. */
  image = (channel: string, signal: AbortSignal): Promise<Response> => call(`${this.path}?${query({ format: 'nifti', channel })}`, { signal });

  /** As a file of colours: itself, if it is one that browsers read. */
  colours = (format: string, signal: AbortSignal): Promise<Response> => call(`${this.path}${format === 'png' ? '' : '?format=png'}`, { signal });

  about = (): Promise<Image> => json(`${this.path}?format=json`);

  predict = async (signal: AbortSignal): Promise<Version> => (await call(`${this.path}/predict`, { method: 'POST', signal })).json();

  /** A version of its label map, as NIfTI. */
  labels = (version: number, signal: AbortSignal): Promise<Response> => call(`${this.path}/labels?${query({ version, format: 'nifti' })}`, { signal });

  versions = (signal?: AbortSignal): Promise<Version[]> => all(`${this.path}/labels/versions`, 'versions', signal);

  /** With all versions of its label map. */
  remove = (): Promise<Response> => call(this.path, { method: 'DELETE' });

  /** Save a file of a label map that was made from `version`; refused with `precondition_failed` if there is a newer one. */
  save = async (file: Uint8Array<ArrayBuffer> | Blob, version: number, author: string, signal: AbortSignal): Promise<Version> => {
    const headers: Record<string, string> = { 'Content-Type': 'application/octet-stream', ...(version ? { 'If-Match': `"${version}"` } : { 'If-None-Match': '*' }) };
    return (await call(`${this.path}/labels?${query({ author })}`, { method: 'PUT', headers, body: file, signal })).json();
  };
}

const SUFFIX = /(\.(nii|seg))?\.[^.]*$/; // of an image's file
const CHANNEL = /_\d{4}$/; // that nnU-Net gives the files of images, not those of label maps

/** The images that a label map's file is called like. */
export function calledLike<I extends { name: string }>(images: readonly I[], file: string): I[] {
  const stem = (name: string) => name.toLowerCase().replace(SUFFIX, '');
  const wanted = stem(file);
  const same = images.filter(({ name }) => stem(name) === wanted);
  return same.length ? same : images.filter(({ name }) => stem(name).replace(CHANNEL, '') === wanted);
}

export const learn = async (id: string, fields: object): Promise<Round> => (await post(at(id, '/learn'), fields)).json();
export const rounds = async (id: string): Promise<Round[]> => (await json<{ rounds: Round[] }>(at(id, '/rounds'))).rounds;
/** How the corrected images leave the service: what is told of each layout. */
export const LAYOUTS = {
  nnunet: ['Export for nnU-Net', "The corrected images in nnU-Net's folders, with dataset.json"],
  pairs: ['Export as pairs', 'The corrected images as the service stores them, in the folders images and labels'],
} as const;
export type Layout = keyof typeof LAYOUTS;
export const exported = async (id: string, layout: Layout, signal: AbortSignal): Promise<Blob> => (await call(`${at(id, '/export')}?${query({ layout })}`, { signal })).blob();

/** The mean Dice coefficient on the held-out images after each round; before the first, of the model that was there. */
export function learned(found: Round[]): Point[] {
  const mean = (dice: Round['dice']) => dice?.mean?.mean;
  const start = found.map(({ before }) => mean(before)).find((value) => value !== undefined);
  const points = [[0, start], ...found.map(({ round, dice }) => [round, mean(dice)])];
  return points.filter((point): point is Point => point[1] !== undefined);
}

/** The share of voxels that had to be changed before each round, in percent. */
export const effort = (found: Round[]): Point[] => found.flatMap(({ round, changed }): Point[] => (changed === null ? [] : [[round, 100 * changed]]));
