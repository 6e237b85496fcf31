/** Long calls: the service answers with a job, which is followed to its result, also after a reload of the page. */
import { formatted } from './catalog.svelte.js';
import { call, hear, json, Problem, post } from './service.svelte.js';
import type { Say } from './work.svelte.js';

export interface Job {
  id: string; state: 'queued' | 'running' | 'succeeded' | 'failed'; position: number | null;
  seconds_to_start: number | null; seconds_left: number | null; progress: { done: number; total: number };
}
/** A job of this tab: what it segments, and with which model. */
export interface Left { id: string; name: string; model: string }

const OVER = ['succeeded', 'failed'];
const SLOT = 'caps-med-job';
const PAUSE = 1000; // ms before an interrupted stream is taken up again

/** The job that went on when this tab was reloaded. It goes with the tab. */
export function leftBehind(store: Storage = sessionStorage): Left | undefined {
  const text = store.getItem(SLOT);
  return text === null ? undefined : JSON.parse(text);
}

/** How far a job is, as people read it. */
export function standing({ state, position, seconds_to_start: start, seconds_left: left, progress: { done, total } }: Job): string {
  const about = (seconds: number | null, what: string) => (seconds === null ? '' : `, about ${formatted(seconds, 2)} s ${what}`);
  if (state === 'queued') return `place ${position} in the queue${about(start, 'to wait')}`;
  return total > 0 ? `${done} of ${total} done${about(left, 'left')}` : 'getting ready';
}

/** POST a form and wait for the result in the background; stopping it cancels the job. */
export async function later(path: string, fields: object, what: Omit<Left, 'id'>, signal: AbortSignal, say: Say): Promise<Response> {
  const { id }: Job = await (await post(`${path}&async`, fields, signal)).json();
  sessionStorage.setItem(SLOT, JSON.stringify({ ...what, id }));
  return followed({ ...what, id }, signal, say);
}

/** The result of a job, which is deleted once it is here, or not wanted any more. */
export async function followed({ id, name, model }: Left, signal: AbortSignal, say: Say): Promise<Response> {
  const path = `v1/inference-jobs/${id}`;
  const told = (job: Job) => say(`Segmenting ${name} with ${model}: ${standing(job)}`, job.progress.total > 0 ? job.progress.done / job.progress.total : undefined);
  try {
    signal.throwIfAborted(); // it was stopped while the job was being made
    await over(path, signal, told);
    const answer = await call(`${path}/result`, { signal });
    return new Response(await answer.blob(), { headers: answer.headers });
  } finally {
    sessionStorage.removeItem(SLOT);
    void call(path, { method: 'DELETE' }).catch(() => undefined);
  }
}

/** Wait until a job is finished; its stream may break off, and the service may not answer for a while. */
async function over(path: string, signal: AbortSignal, told: (job: Job) => void): Promise<void> {
  for (let state = ''; ;) {
    const heard = (job: Job) => { state = job.state; told(job); };
    await json<Job>(path).then(heard).catch(unlessSilent);
    if (!OVER.includes(state)) await hear(`${path}/events`, signal, { job: heard }).catch(unlessSilent);
    signal.throwIfAborted();
    if (OVER.includes(state)) return;
    await new Promise((then) => { setTimeout(then, PAUSE); });
  }
}

/** What the service refuses is for good; a connection that breaks off is not. */
function unlessSilent(error: unknown): void {
  if (error instanceof Problem && error.code) throw error;
}
