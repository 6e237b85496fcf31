/** Where the page is: a view, and what is open in it, as `#annotate/PROJECT/IMAGE`. Back and Forward lead through it, and a reload keeps it. */

import { note, storage } from './tab.js';

const SLOT = 'caps-med-places';
const PART = /^[\w-]+$/; // ids and names, of which paths of the service are made

/** What is open in a view, outermost first, such as a project and one of its images. */
export type Place = readonly string[];

export class Address {
  view = $state('');
  private places = $state.raw<Readonly<Record<string, Place>>>({});

  constructor(private readonly store = storage()) {
    this.places = JSON.parse(this.store.getItem(SLOT) ?? '{}');
    this.read();
  }

  /** What is open in a view, or was when it was last shown. */
  place = (view: string): Place => this.places[view] ?? [];

  /** The address that leads there. */
  of = (view: string): string => `#${[view, ...this.place(view)].join('/')}`;

  /** Take what the browser has: after Back and Forward, or a link. */
  read = (): void => {
    const [view = '', ...parts] = (globalThis.location?.hash ?? '').slice(1).split('/');
    this.view = view;
    this.keep(view, parts.every((part) => PART.test(part)) ? parts : []);
  };

  /** Open something: Back leads to what is open now. Whoever has gone to another view meanwhile stays there. */
  open(view: string, ...place: Place): void {
    this.keep(view, place);
    if (view !== this.view) return;
    location.hash = this.of(view);
  }

  /** Tell more of what is open, or less; Back leads to where it leads now. */
  tell(view: string, ...place: Place): void {
    this.keep(view, place);
    if (view === this.view) history.replaceState(history.state, '', this.of(view));
  }

  private keep(view: string, place: Place): void {
    if (!view || `${place}` === `${this.place(view)}`) return;
    this.places = { ...this.places, [view]: place };
    note(SLOT, JSON.stringify(this.places), this.store);
  }
}
export const address = new Address();
