/** A training job, as the service tells of it. */
import { formatted } from './catalog.svelte.js';
import { type Finding, hear, unlessSilent } from './service.svelte.js';

interface Progress { phase?: string; epoch?: number; epochs?: number; step?: number; steps?: number; loss?: number; score?: number }
export interface Job {
  id: string; state: string; task: string; name: string; created: string; position: number | null;
  seconds_left: number | null; progress: Progress; scores: Record<string, number>[];
  model: string | null; error: string | null; report?: boolean; findings?: Finding[];
}
export const OVER = ['succeeded', 'failed', 'cancelled'];

/** How far it is, as people read it. */
export const standing = ({ state, position, seconds_left, error, progress: { phase, epoch, epochs, loss } }: Job): string => [
  state, position && `place ${position} in the queue`, phase, epoch && `epoch ${epoch} of ${epochs ?? '?'}`,
  state === 'running' && loss !== undefined && `loss ${formatted(loss, 4)}`, seconds_left && `about ${formatted(seconds_left, 2)} s left`, error].filter(Boolean).join(' · ');

/** Which part of it is done, from 0 to 1. */
export const part = ({ state, progress: { step = 0, steps = 1 } }: Job): number => (state === 'succeeded' ? 1 : step / steps);

const PAUSE = 3000; // milliseconds before an interrupted stream is taken up again

/** What is heard of a job; `begins`: a stream, which tells everything from the beginning. */
interface Heard { begins: () => void; job: (now: Job) => void; log: (more: { lines: string[] }) => void; picture: (one: { name: string }) => unknown }

/** Hear of a job until it is over or nobody listens any more; its stream may break off. */
export async function followed(id: string, signal: AbortSignal, { begins, ...heard }: Heard): Promise<void> {
  for (let [state, told] = ['', false]; ; told = false) {
    const job = (now: Job) => {
      if (!told) begins();
      [state, told] = [now.state, true];
      heard.job(now);
    };
    await hear(`v1/training-jobs/${id}/events`, signal, { ...heard, job }).catch(unlessSilent);
    if (signal.aborted || OVER.includes(state)) return;
    await new Promise((then) => { setTimeout(then, PAUSE); });
    if (signal.aborted) return;
  }
}
