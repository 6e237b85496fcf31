/** Long calls: the service answers with a job, which is followed to its result, also after a reload of the page. */
import { formatted } from './catalog.svelte.js';
import { apart } from './names.js';
import { call, hear, isSilence, json, newToken, pause, Problem, post, unlessSilent } from './service.svelte.js';
import { note, storage } from './tab.js';
import type { Say } from './work.svelte.js';

export interface Job {
  id: string; state: 'queued' | 'running' | 'succeeded' | 'failed'; position: number | null;
  seconds_to_start: number | null; seconds_left: number | null; progress: { done: number; total: number };
}
/** A job of this tab: what it segments, with which model, and the idempotency key that it was asked for with; `id` once it is known. */
export interface Left { name: string; model: string; token: string; id?: string }

const ACCEPTED = 202;
const OVER = ['succeeded', 'failed'];
const SLOT = 'caps-med-job';
const PAUSE = 1; // seconds before what was interrupted, or is not there yet, is asked for again
const NOT_WANTED = 60_000; // ms for which a job is looked for to be deleted
const ANSWERS = 300; // ms for which another tab is listened to

/** The job that went on when this tab was reloaded. It goes with the tab. */
export function leftBehind(store: Storage = storage()): Left | undefined {
  const text = store.getItem(SLOT);
  return text === null ? undefined : JSON.parse(text);
}

/** Whether another tab has this job: one that is duplicated gets a copy of what the first one keeps, which is let go here. */
export async function hasOther(left: Left): Promise<boolean> {
  const tabs = new BroadcastChannel(SLOT);
  const has = await new Promise<boolean>((then) => {
    tabs.onmessage = ({ data }) => { if (data.has === left.token) then(true); };
    tabs.postMessage({ asked: left.token });
    setTimeout(then, ANSWERS, false);
  });
  tabs.close();
  if (has) forget(left);
  return has;
}

/** How far a job is, as people read it. */
export function standing({ state, position, seconds_to_start: start, seconds_left: left, progress: { done, total } }: Job): string {
  const about = (seconds: number | null, what: string) => (seconds === null ? '' : `, about ${formatted(seconds, 2)} s ${what}`);
  if (state === 'queued') return `place ${position} in the queue${about(start, 'to wait')}`;
  return total > 0 ? `${done} of ${total} done${about(left, 'left')}` : 'getting ready';
}

/**
 * POST a form and wait for the result in the background; stopping it cancels the job. A service that restarts loses its
 * jobs: then the form is sent once more, and not again and again, for the job itself may have ended the service.
 */
export async function later(path: string, fields: object, what: Pick<Left, 'name' | 'model'>, signal: AbortSignal, say: Say): Promise<Response> {
  const once = () => begunAndFollowed(path, fields, what, signal, say);
  try {
    return await once();
  } catch (error) {
    if (!isLost(error)) throw error;
    say(`The service has restarted; segmenting ${apart(what.name)} again`);
    return once();
  }
}

const isLost = (error: unknown): error is Problem => error instanceof Problem && error.code === 'job_not_found';

async function begunAndFollowed(path: string, fields: object, what: Pick<Left, 'name' | 'model'>, signal: AbortSignal, say: Say): Promise<Response> {
  const left: Left = { ...what, token: newToken() };
  remember(left); // the page may be reloaded before the answer, for which the whole file has to arrive
  try {
    const answer = await post(`${path}&async`, fields, signal, keyed(left));
    if (answer.status !== ACCEPTED) { // a service that only infers has no jobs, and answers at once
      forget(left);
      return answer;
    }
    left.id = await idOf(answer);
  } catch (error) {
    if (signal.aborted) void begun(left, AbortSignal.timeout(NOT_WANTED)).then(drop, () => undefined);
    if (signal.aborted || !isSilence(error)) forget(left); // else the service may have got it
    throw error;
  }
  return followed(left, signal, say);
}

const JOBS = 'v1/inference-jobs';
const keyed = ({ token }: Left) => ({ 'Idempotency-Key': token });
/** How other tabs are told which jobs this one has. */
const held = new Map<string, BroadcastChannel>();
function remember(left: Left): void {
  note(SLOT, JSON.stringify(left));
  const { token } = left;
  if (held.has(token) || leftBehind()?.token !== token) return; // of what is not kept no other tab gets a copy
  const tabs = new BroadcastChannel(SLOT);
  tabs.onmessage = ({ data }) => { if (data.asked === token) tabs.postMessage({ has: token }); };
  held.set(token, tabs);
}
/** Of one that is stopped, the tab may have the next one by then. */
function forget({ token }: Left): void {
  if (leftBehind()?.token === token) storage().removeItem(SLOT);
  held.get(token)?.close();
  held.delete(token);
}
const idOf = async (answer: Response | Promise<Response>): Promise<string> => ((await (await answer).json()) as Job).id;
const drop = (id: string) => call(`${JOBS}/${id}`, { method: 'DELETE' }).catch(() => undefined);

/** The job that was asked for, by a request whose answer was lost, once the service has read that. */
async function begun(left: Left, signal: AbortSignal): Promise<string> {
  for (;;) {
    try {
      return await idOf(call(JOBS, { headers: keyed(left), signal }));
    } catch (error) {
      if (isLost(error))
        throw new Problem('the upload was interrupted', `The page was reloaded before ${apart(left.name)} was uploaded: choose it again.`, error.code);
      if (!isSilence(error) && (error as Problem).code !== 'not_finished') throw error;
    }
    await pause(PAUSE, signal);
  }
}

/** The result of a job, which is deleted once it is here, or not wanted any more. */
export async function followed(left: Left, signal: AbortSignal, say: Say): Promise<Response> {
  const { name, model } = left;
  let { id } = left;
  const told = (job: Job) => say(`Segmenting ${apart(name)} with ${model}: ${standing(job)}`, job.progress.total > 0 ? job.progress.done / job.progress.total : undefined);
  try {
    signal.throwIfAborted(); // it was stopped while the job was being made
    remember(left);
    id ??= await begun(left, signal);
    await over(`${JOBS}/${id}`, signal, told);
    const answer = await call(`${JOBS}/${id}/result`, { signal });
    return new Response(await answer.blob(), { headers: answer.headers });
  } finally {
    forget(left);
    if (id) void drop(id);
  }
}

/** Wait until a job is finished; its stream may break off, and the service may not answer for a while. */
async function over(path: string, signal: AbortSignal, told: (job: Job) => void): Promise<void> {
  for (let state = ''; ;) {
    const heard = (job: Job) => { state = job.state; told(job); };
    await json<Job>(path, signal).then(heard).catch(unlessSilent);
    if (!OVER.includes(state)) await hear(`${path}/events`, signal, { job: heard }).catch(unlessSilent);
    signal.throwIfAborted();
    if (OVER.includes(state)) return;
    await pause(PAUSE, signal);
  }
}
