import { chapSha1, chapSha1FromHash1, hash2Of, verifyChapSha1 } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'

describe('the scheme', () => {
  it('recovers what logs in under another salt from one proof and the stored hash', () => {
    const salt = Uint8Array.from({ length: 32 }, (_, i) => i)
    const other = Uint8Array.from({ length: 32 }, (_, i) => 0x20 + i)
    const proof = chapSha1(salt, 's3cret')
    expect(Buffer.from(proof).toString('hex')).toBe('0bd8b0e24becc01086e2273997e285e6e5de5d59')
    const hash1 = verifyChapSha1(salt, hash2Of('s3cret'), proof)!
    expect(Buffer.from(hash1).toString('hex')).toBe('fef341f85d87439e7d91a2d465b9871ef66b5e98')
    expect(Buffer.from(chapSha1FromHash1(other, hash1)).toString('hex')).toBe(
      '59181d992c412bbc1a28252339a67f8009e69382',
    )
  })
})
