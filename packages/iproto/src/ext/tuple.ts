/** One field of a space's format, as a reply with tuple extensions carries it. */
export interface FieldFormat {
  readonly name: string
  readonly type: string
  readonly isNullable: boolean
}

/**
 * A row together with the names of its fields: extension 7, which arrives only when feature 7 (SELECT, DML) or 8 (CALL, EVAL) was
 * agreed on. It is written back as a plain array.
 */
export class Tuple implements Iterable<unknown> {
  readonly values: readonly unknown[]
  /** May be shorter than the values (fields beyond the format have no name) or longer (trailing fields are absent). */
  readonly format: readonly FieldFormat[]

  constructor(values: readonly unknown[], format: readonly FieldFormat[]) {
    this.values = values
    this.format = format
  }

  get length(): number {
    return this.values.length
  }

  /** Named fields as an object; values without a name are left out, absent trailing fields too. */
  toObject(): Record<string, unknown> {
    const record: Record<string, unknown> = {}
    for (const [i, { name }] of this.format.entries()) {
      if (i === this.values.length) break
      // Defined, not assigned: a field may be called __proto__.
      Object.defineProperty(record, name, {
        value: this.values[i],
        writable: true,
        enumerable: true,
        configurable: true,
      })
    }
    return record
  }

  [Symbol.iterator](): Iterator<unknown> {
    return this.values[Symbol.iterator]()
  }

  toJSON(): readonly unknown[] {
    return this.values
  }
}
