/** Form fields that say what they take. */

/** Say what a field takes where the browser would say that it does not fit. */
export const takes = (what: string) => (field: HTMLInputElement): (() => void) => {
  const check = () => {
    field.setCustomValidity('');
    if (!field.validity.valid) field.setCustomValidity(what);
  };
  check();
  field.addEventListener('input', check);
  return () => field.removeEventListener('input', check);
};
