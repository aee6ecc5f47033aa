//! Words and decisions of WaveHouse: ids, blocks, placement, faults. No I/O, no clock.
