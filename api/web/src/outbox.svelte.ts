/** Corrected label maps on their way to the service, which may take long to answer: other images are corrected meanwhile. */
import { draftOf, forgetDraft, keepDraft, Unseen } from './drafts.js';
import type { Version } from './projects.js';
import { pause, Problem } from './service.svelte.js';
import { unlessStopped } from './work.svelte.js';

/** A label map of the service: its version, and its voxels in NiiVue's order. */
export interface Stored<V> { version: V; labels: Uint8Array }
/** One that is to be saved, and by which routes. `base`: the version that it corrects. */
export interface Parcel<V> {
  image: string; name: string; base: number; labels: Uint8Array; slices: string[];
  save: (base: number, signal: AbortSignal) => Promise<V>;
  newest: (signal: AbortSignal) => Promise<Stored<V> | undefined>;
}
/** How that ended; `theirs`: what somebody else has saved meanwhile, so that this was not. */
export interface Delivered<V> { saved?: V; theirs?: Stored<V> | undefined }

const LIMIT = 60_000; // ms after which an answer is at first not waited for any more; sending it again does no harm
const LONGEST = 3_600_000; // ms; each time twice as long as before, for a line may be slow
const PAUSES = [1, 2, 5, 10, 30]; // seconds before it is sent again, the last one from then on

const same = (one: Uint8Array, two: Uint8Array): boolean => one.length === two.length && one.every((value, i) => value === two[i]);

export class Outbox<V extends Pick<Version, 'version'> & Partial<Pick<Version, 'kind'>>> {
  /** What has not arrived: the names of images by their ids, and whether one was sent without an answer. */
  waiting = $state.raw<Record<string, { name: string; silent: boolean }>>({});
  /** Told once one is saved, whoever has sent it. */
  onSaved: (parcel: Parcel<V>, saved: V) => void = () => undefined;
  /** Label maps whose sending had no answer: the service may have them. */
  private unanswered: Record<string, Uint8Array[]> = {};
  /** The images of which a prediction was asked for and never shown: the service may have saved it, in nobody else's name. */
  readonly unseen = new Unseen();
  private sending: Record<string, AbortController> = {};

  /** Send a label map until that is answered; until then it is kept as a draft. Undefined once another one of the same image takes its place. */
  async send(parcel: Parcel<V>): Promise<Delivered<V> | undefined> {
    const { image, name, base: version, labels, slices } = parcel;
    this.sending[image]?.abort();
    const now = new AbortController();
    this.sending[image] = now;
    keepDraft(image, { version, labels, slices });
    this.waiting = { ...this.waiting, [image]: { name, silent: false } };
    try {
      return await this.deliver(parcel, now.signal);
    } catch (error) {
      if (now.signal.aborted) return undefined;
      throw error;
    } finally {
      if (this.sending[image] === now) {
        delete this.sending[image];
        const { [image]: _, ...others } = this.waiting;
        this.waiting = others;
      }
    }
  }

  private async deliver(parcel: Parcel<V>, signal: AbortSignal): Promise<Delivered<V>> {
    const { image, name, labels } = parcel;
    const tried = [...this.unanswered[image] ?? [], labels];
    this.unanswered[image] = tried;
    for (let [base, times, limit] = [parcel.base, 0, LIMIT]; ; times += 1) {
      const limited = AbortSignal.any([signal, AbortSignal.timeout(limit)]);
      try {
        const { saved, theirs } = await this.attempt(parcel, base, limited);
        const predicted = theirs?.version.kind === 'prediction';
        const own = saved ?? (theirs && !predicted && same(theirs.labels, labels) ? theirs.version : undefined);
        if (!own && theirs && ((predicted && this.unseen.has(image)) || tried.some((one) => same(one, theirs.labels)))) { // an older one of this image had arrived
          base = theirs.version.version;
          continue;
        }
        delete this.unanswered[image];
        this.unseen.delete(image);
        if (own) this.arrived(parcel, own);
        return own ? { saved: own } : { theirs };
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof Problem && (!error.passes || error.code === 'unauthorized')) throw error;
        if (!(error instanceof Problem) && !limited.aborted) throw error;
        if (limited.aborted) limit = Math.min(2 * limit, LONGEST);
      }
      this.waiting = { ...this.waiting, [image]: { name, silent: true } };
      await pause(PAUSES[Math.min(times, PAUSES.length - 1)] as number, signal);
    }
  }

  /** What was painted since then corrects what is saved now. */
  private arrived(parcel: Parcel<V>, saved: V): void {
    const { image, labels } = parcel;
    const draft = draftOf(image);
    if (!draft || same(draft.labels, labels)) forgetDraft(image);
    else keepDraft(image, { ...draft, version: saved.version });
    this.onSaved(parcel, saved);
  }

  /** Save it, or find out what keeps it from being saved. */
  private async attempt({ save, newest }: Parcel<V>, base: number, signal: AbortSignal): Promise<Delivered<V>> {
    try {
      return { saved: await unlessStopped(signal, save(base, signal)) };
    } catch (error) {
      if (!(error instanceof Problem && error.code === 'precondition_failed')) throw error;
      return { theirs: await unlessStopped(signal, newest(signal)) };
    }
  }
}
/** What all projects of this page have on its way. */
export const outbox = new Outbox<Version>();
