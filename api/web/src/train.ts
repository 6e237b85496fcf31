/** Train a model on the service, and watch. */
import { allModels, loadModels } from './catalog.js';
import { drawCurve } from './curve.js';
import { fill, find, make, told } from './dom.js';
import { call, events, type Finding, json, post, Problem } from './service.js';
import { Work } from './work.js';

interface Job {
  id: string; state: string; task: string; name: string; created: string; position: number | null;
  seconds_left: number | null; progress: Record<string, number>; scores: Record<string, number>[];
  model: string | null; error: string | null;
}
const OVER = ['succeeded', 'failed', 'cancelled'];

export function trainView(view: HTMLElement): void {
  const work = new Work(find('.work', view));
  const form = find<HTMLFormElement>('form', view);
  const panel = find('.job', view);
  const archive = find<HTMLInputElement>('[name=archive]', form);
  let following: AbortController | undefined;
  let losses: number[] = [];

  const refresh = async () => {
    const listed = await json<{ jobs: Job[]; data_sets: string[] }>('v1/training-jobs');
    fill(find('[name=data]', form), listed.data_sets.map((name) => [name, name]));
    find('.jobs tbody', view).replaceChildren(...listed.jobs.map((job) => make('tr', {},
      make('td', {}, job.name), make('td', {}, job.task), make('td', {}, job.state),
      make('td', {}, new Date(job.created).toLocaleString('en')),
      make('td', {}, make('button', { type: 'button', className: 'quiet', onclick: () => void follow(job) }, 'Look')))));
  };

  /** What is wrong with the data, as the check found it. */
  const findings = (found: Finding[]) => {
    find('.findings', view).hidden = found.length === 0;
    find('.findings tbody', view).replaceChildren(...found.map(({ file, what, fix, severity }) =>
      make('tr', { className: severity }, make('td', {}, file), make('td', {}, what), make('td', {}, fix))));
  };

  const show = (job: Job) => {
    const { epoch, epochs, step, steps, loss } = job.progress;
    find('.title', panel).textContent = job.name;
    find('.state', panel).textContent = [job.state, job.position ? `place ${job.position} in the queue` : '',
      epoch ? `epoch ${epoch} of ${epochs ?? '?'}` : '', job.seconds_left ? `about ${told(job.seconds_left, 2)} s left` : '',
      job.error ?? ''].filter(Boolean).join(' · ');
    find<HTMLProgressElement>('progress', panel).value = job.state === 'succeeded' ? 1 : step && steps ? step / steps : 0;
    find('.cancel', panel).hidden = OVER.includes(job.state);
    if (loss !== undefined && loss !== losses.at(-1)) losses.push(loss);
    const scores = job.scores.map((one) => one.score ?? Number.NaN).filter(Number.isFinite);
    for (const [name, values] of [['loss', losses], ['score', scores]] as const) {
      drawCurve(find(`.${name}`, panel), values);
      find('output', find(`.${name}`, panel).parentElement as HTMLElement).textContent = told(values.at(-1) ?? Number.NaN, 4);
    }
    const use = find<HTMLAnchorElement>('.use', panel);
    use.hidden = !job.model;
    use.href = job.task === 'synthesis' ? '#synthesize' : '#segment';
    use.onclick = () => void loadModels().then(() => {
      const select = find<HTMLSelectElement>(`${use.hash} select.model`);
      select.value = job.name;
      select.dispatchEvent(new Event('change'));
    });
  };

  const picture = async (job: Job, name: string) => {
    const answer = await call(`v1/training-jobs/${job.id}/pictures/${name}`);
    const image = make('img', { src: URL.createObjectURL(await answer.blob()), alt: `Validation, ${name}` });
    find('.pictures', panel).append(make('figure', {}, image, make('figcaption', {}, name.replace(/\.png$/, ''))));
  };

  const follow = async (job: Job) => {
    following?.abort();
    const controller = new AbortController();
    following = controller;
    losses = [];
    find('.pictures', panel).replaceChildren();
    find('.log', panel).replaceChildren();
    panel.hidden = false;
    show(job);
    find('.cancel', panel).onclick = () =>
      void call(`v1/training-jobs/${job.id}`, { method: 'DELETE' }).catch((error) => work.fail(error));
    try {
      for await (const [name, data] of events(`v1/training-jobs/${job.id}/events`, controller.signal)) {
        if (name === 'job') show(data as Job);
        if (name === 'picture') void picture(job, (data as { name: string }).name).catch(() => undefined);
        if (name === 'log') find('.log', panel).append(`${(data as { lines: string[] }).lines.join('\n')}\n`);
      }
      await Promise.all([refresh(), loadModels()]);
    } catch (error) {
      if (!controller.signal.aborted) work.fail(error);
    }
  };

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    findings([]);
    void work.run('Looking at the data', async (signal) => {
      const fields = Object.fromEntries(new FormData(form)) as Record<string, string | File | undefined>;
      if (archive.files?.length) delete fields.data;
      else delete fields.archive;
      const answer = await post('v1/training-jobs', fields, signal).catch((error: unknown) => {
        if (error instanceof Problem) findings(error.findings);
        throw error;
      });
      void follow((await answer.json()) as Job);
      await refresh();
    });
  });
  archive.addEventListener('change', () => { find('.chosen', form).textContent = archive.files?.item(0)?.name ?? ''; });
  for (const type of ['dragover', 'drop']) view.addEventListener(type, (event) => event.preventDefault());
  view.addEventListener('drop', (event) => {
    const files = event.dataTransfer?.files;
    if (!files?.length) return;
    archive.files = files;
    archive.dispatchEvent(new Event('change'));
  });
  const refill = () => fill(find('[name=start_from]', form),
    [['', 'random weights'], ...allModels().map((m): [string, string] => [m.name, m.name])]);
  document.addEventListener('models', refill);
  view.addEventListener('shown', () => void refresh().catch((error) => work.fail(
    error instanceof Problem && error.code === 'not_found'
      ? new Problem('no training here', "This service does not train. Install caps-med with the extra 'train' and start it again.", 'off')
      : error)));
}
