//! Statistics of Twitter's caches in March 2020, one line for each of 53 clusters (of a 54th there are
//! none): J. Yang, Y. Yue and K. V. Rashmi, "A large scale analysis of hundreds of in-memory cache
//! clusters at Twitter", USENIX OSDI 2020; the table `stat/2020Mar.md` of twitter/cache-trace, which
//! is under CC BY 4.0. Some of its columns are left out, and TTLs are.

/// What is published of a cluster.
pub struct Cluster {
    /// Its number.
    pub number: u32,
    /// Bytes of a key, on average.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Thousands of requests a second.
    pub kqps: f64,
    /// Of a hundred requests, those for a key that was never requested before.
    pub compulsory: f64,
    /// MB that are requested before they expire. Of the smallest 0 is published.
    pub working_set: f64,
    /// The exponent of Zipf's law; not published of two.
    pub exponent: Option<f64>,
}

const fn cluster(
    number: u32,
    key: u32,
    value: u32,
    kqps: f64,
    compulsory: f64,
    working_set: f64,
    exponent: Option<f64>,
) -> Cluster {
    Cluster {
        number,
        key,
        value,
        kqps,
        compulsory,
        working_set,
        exponent,
    }
}

/// All of them.
pub const CLUSTERS: [Cluster; 53] = [
    cluster(1, 80, 267, 11.40, 0.0, 0.0, Some(2.6774)),
    cluster(2, 21, 68, 12.15, 0.11, 0.0, Some(1.4908)),
    cluster(3, 19, 120, 1.36, 1.09, 0.0, Some(1.6414)),
    cluster(4, 67, 2439, 5.26, 3.77, 0.0, Some(1.1004)),
    cluster(6, 44, 252, 12.61, 0.31, 128.0, Some(1.882)),
    cluster(7, 17, 1936, 1.62, 1.37, 85.0, Some(1.0666)),
    cluster(8, 23, 9497, 2.11, 0.07, 0.0, Some(1.7366)),
    cluster(9, 32, 39, 18.83, 0.22, 16.0, Some(1.6796)),
    cluster(10, 22, 2333, 0.22, 49.99, 1232.0, Some(0.0)),
    cluster(11, 24, 170, 4.16, 2.19, 1751.0, Some(1.4891)),
    cluster(12, 44, 1030, 4.36, 79.45, 986.0, Some(0.3048)),
    cluster(13, 44, 4266, 1.34, 62.38, 1035.0, Some(0.4565)),
    cluster(14, 96, 414, 5.81, 2.82, 8732.0, Some(1.2959)),
    cluster(15, 18, 102, 9.02, 99.22, 15.0, Some(0.0242)),
    cluster(16, 18, 115, 17.51, 0.36, 18.0, Some(1.7862)),
    cluster(17, 19, 212, 0.35, 1.64, 1162.0, Some(2.1106)),
    cluster(18, 18, 37, 26.40, 0.15, 41.0, Some(2.0994)),
    cluster(19, 42, 101, 3.31, 21.2, 3448.0, Some(0.735)),
    cluster(20, 26, 55, 5.63, 3.37, 2147.0, Some(1.3699)),
    cluster(21, 25, 1, 2.18, 95.07, 239.0, Some(0.0521)),
    cluster(22, 54, 4, 3.24, 23.43, 1682.0, Some(0.7624)),
    cluster(23, 35, 224, 8.69, 25.82, 91.0, Some(0.274)),
    cluster(24, 32, 699, 5.29, 0.74, 5071.0, Some(1.3726)),
    cluster(25, 49, 28, 18.97, 0.15, 327.0, Some(0.9929)),
    cluster(26, 122, 1745, 0.25, 7.72, 30.0, Some(0.6299)),
    cluster(27, 66, 8, 24.55, 11.12, 4372.0, Some(1.065)),
    cluster(28, 45, 85, 9.05, 1.51, 725.0, Some(1.503)),
    cluster(29, 36, 799, 10.73, 4.45, 891.0, Some(1.2323)),
    cluster(30, 22, 689, 3.85, 0.65, 775.0, Some(1.4259)),
    cluster(31, 41, 15, 2.52, 94.39, 5.0, Some(0.0)),
    cluster(32, 41, 138, 7.35, 97.62, 74.0, Some(0.0)),
    cluster(33, 24, 1118, 10.53, 0.39, 1390.0, Some(1.354)),
    cluster(34, 33, 322, 3.40, 2.03, 210.0, Some(1.1401)),
    cluster(35, 19, 1796, 3.06, 6.75, 9.0, Some(0.0)),
    cluster(36, 23, 78, 9.08, 2.14, 2696.0, Some(1.2169)),
    cluster(37, 72, 20134, 4.15, 26.35, 551.0, Some(0.4251)),
    cluster(38, 41, 185, 2.52, 94.39, 21.0, Some(0.0)),
    cluster(39, 41, 80, 2.52, 94.39, 12.0, Some(0.0)),
    cluster(40, 44, 155, 6.26, 8.48, 1021.0, Some(0.8551)),
    cluster(41, 44, 171, 5.18, 8.5, 849.0, Some(0.8542)),
    cluster(42, 40, 4703, 6.84, 0.43, 212.0, Some(1.5974)),
    cluster(43, 44, 304, 14.54, 5.43, 1391.0, None),
    cluster(44, 25, 22, 9.41, 1.65, 536.0, Some(1.4084)),
    cluster(45, 10, 120, 0.33, 35.07, 1046.0, Some(0.6372)),
    cluster(46, 44, 928, 10.47, 19.21, 16437.0, None),
    cluster(47, 44, 267, 9.54, 0.12, 434.0, Some(2.0637)),
    cluster(48, 44, 70, 1.84, 28.4, 4057.0, Some(0.8191)),
    cluster(49, 44, 10658, 1.25, 0.65, 41.0, Some(1.5095)),
    cluster(50, 18, 67485, 0.24, 4.52, 153.0, Some(1.2816)),
    cluster(51, 44, 221, 10.40, 0.12, 258.0, Some(1.9745)),
    cluster(52, 20, 273, 24.25, 3.07, 12583.0, Some(1.2117)),
    cluster(53, 36, 9213, 1.38, 3.62, 4122.0, Some(1.2061)),
    cluster(54, 19, 246, 0.65, 10.25, 457.0, Some(1.611)),
];
