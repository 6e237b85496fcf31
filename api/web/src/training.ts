/** A training job, as the service tells of it. */
import { formatted } from './catalog.svelte.js';
import type { Finding } from './service.svelte.js';

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
