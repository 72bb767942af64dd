// Exponential back-off with full jitter: members that lose their coordinator together do not all
// come back together. Source: Brooker, "Exponential Backoff And Jitter" (2015).

const FIRST_MS = 100;

/** A number from 0 to 1, below 1. */
export type Random = () => number;

export class BackOff {
  private attempts = 0;

  constructor(
    private readonly random: Random,
    public mostMs = 5_000,
  ) {}

  /** The next pause: by chance, up to a limit that doubles each time. */
  nextMs(): number {
    const limitMs = Math.min(this.mostMs, FIRST_MS * 2 ** Math.min(this.attempts++, 30));
    return Math.round(limitMs * this.random());
  }

  reset(): void {
    this.attempts = 0;
  }
}
