/** Names that people have given: of labels, files, projects, people. */

const MARKS = /[\u2066-\u2069]/g; // that begin and end what is kept apart
const OTHERS = /[\u0590-\uffff]/; // letters that may run from right to left, and marks of direction

/** A name within a sentence: in whatever direction it is written, the words around it stay where they are. */
export const apart = (name: string): string => (OTHERS.test(name) ? `\u2068${name.replace(MARKS, '')}\u2069` : name);
