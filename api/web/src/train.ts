/** Train a model on the service, and watch. */
import { leadTo, loadModels, type Task } from './catalog.js';
import { fill, find, make, put, row, told } from './dom.js';
import { call, type Finding, hear, json, picture, post, Problem } from './service.js';
import { Work } from './work.js';

interface Job {
  id: string; state: string; task: Task; name: string; created: string; position: number | null;
  seconds_left: number | null; progress: Record<string, number>; scores: Record<string, number>[];
  model: string | null; error: string | null;
}
const OVER = ['succeeded', 'failed', 'cancelled'];

/** The points of a polyline of 320 x 120: x by rank, y from the smallest to the largest value. */
export function points(values: number[]): string {
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const x = (i: number) => (values.length > 1 ? (320 * i) / (values.length - 1) : 160);
  return values.map((value, i) => `${x(i).toFixed(1)},${(114 - (108 * (value - low)) / range).toFixed(1)}`).join(' ');
}

export function trainView(view: HTMLElement): void {
  const work = new Work(find('.work', view));
  const [form, panel, archive] = [find('form', view), find('.job', view), find('.drop input', view)];
  let following = new AbortController();
  let losses: number[] = [];

  const refresh = async () => {
    const { jobs, data_sets } = await json<{ jobs: Job[]; data_sets: string[] }>('v1/training-jobs').catch((error) => {
      if (error.code !== 'not_found') throw error;
      throw new Problem('no training here', "This service does not train. Install caps-med with the extra 'train' and start it again.");
    });
    fill(find('select.data', form), data_sets);
    put(view, {
      jobs: jobs.map((job) => row([job.name, job.task, job.state, new Date(job.created).toLocaleString('en'),
        make('button', { type: 'button', className: 'quiet', onclick: () => void work.quick(follow(job)) }, 'Look')])),
    });
  };

  /** What is wrong with the data, as the check found it. */
  const findings = (found: Finding[] = []) => {
    find('.findings', view).hidden = found.length === 0;
    put(view, { wrong: found.map(({ file, what, fix, severity }) => row([file, what, fix], severity)) });
  };

  const show = (job: Job) => {
    const { epoch, epochs, step, steps, loss } = job.progress;
    if (loss !== undefined && loss !== losses.at(-1)) losses.push(loss);
    const scores = job.scores.map((one) => one.score ?? Number.NaN).filter(Number.isFinite);
    for (const [name, values] of [['loss', losses], ['score', scores]] as const) {
      find(`.${name} output`, panel).textContent = told(values.at(-1) ?? Number.NaN, 4);
      if (values.length) find(`.${name} polyline`, panel).setAttribute('points', points(values));
    }
    const state = [job.state, job.position && `place ${job.position} in the queue`, epoch && `epoch ${epoch} of ${epochs ?? '?'}`,
      job.seconds_left && `about ${told(job.seconds_left, 2)} s left`, job.error].filter(Boolean).join(' · ');
    put(panel, { title: job.name, state });
    find('progress', panel).value = job.state === 'succeeded' ? 1 : (step ?? 0) / (steps ?? 1);
    find('.cancel', panel).hidden = OVER.includes(job.state);
    leadTo(find('a.use', panel), job).hidden = !job.model;
  };

  const follow = async (job: Job) => {
    following.abort();
    following = new AbortController();
    const { signal } = following;
    const path = `v1/training-jobs/${job.id}`;
    losses = [];
    for (const line of panel.querySelectorAll('polyline')) line.removeAttribute('points');
    put(panel, { pictures: [], log: '' });
    panel.hidden = false;
    show(job);
    find('.cancel', panel).onclick = () => void work.quick(call(path, { method: 'DELETE' }));
    await hear(`${path}/events`, signal, {
      job: show,
      log: ({ lines }: { lines: string[] }) => find('.log', panel).append(`${lines.join('\n')}\n`),
      picture: ({ name }: { name: string }) => {
        const image = make('img', { alt: `Validation, ${name}` });
        find('.pictures', panel).append(make('figure', {}, image, make('figcaption', {}, name.replace(/\.png$/, ''))));
        void picture(call(`${path}/pictures/${name}`, { signal })).then((url) => { image.src = url; }, () => undefined);
      },
    });
    if (!signal.aborted) await Promise.all([refresh(), loadModels()]);
  };

  form.onsubmit = (event) => {
    event.preventDefault();
    findings();
    void work.run('Looking at the data', async (signal) => {
      const fields = Object.fromEntries(new FormData(form));
      delete fields[archive.files?.length ? 'data' : 'archive'];
      const answer = await post('v1/training-jobs', fields, signal).catch((error) => {
        findings(error.findings);
        throw error;
      });
      void work.quick(follow(await answer.json()));
      await refresh();
    });
  };
  archive.onchange = () => put(form, { chosen: archive.files?.item(0)?.name ?? '' });
  view.addEventListener('shown', () => void work.quick(refresh()));
}
