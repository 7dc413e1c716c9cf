//! The feature `serde`.

use stillpoint::Domain;
use stillpoint_map::{BTreeMap, CopyMap, HashMap, HashSet};

#[test]
fn a_map_is_written_and_read() {
    let map: HashMap<String, Vec<u32>> = (0..100).map(|n| (n.to_string(), vec![n; 3])).collect();
    let text = serde_json::to_string(&map).unwrap();
    let read: std::collections::HashMap<String, Vec<u32>> = serde_json::from_str(&text).unwrap();
    assert_eq!(read.len(), 100);
    assert_eq!(read["42"], [42; 3]);
    assert_eq!(serde_json::from_str::<HashMap<_, _>>(&text).unwrap(), map);
    assert_eq!(serde_json::to_string(&map.pin()).unwrap(), text);
}

#[test]
fn copies_are_written_and_read() {
    let map: CopyMap<u32, u64> = (0..100).map(|n| (n, u64::from(n) << 32)).collect();
    let text = serde_json::to_string(&map).unwrap();
    let read: HashMap<u32, u64> = serde_json::from_str(&text).unwrap();
    assert_eq!(read.pin().get(&42), Some(&(42 << 32)));
    assert_eq!(serde_json::from_str::<CopyMap<_, _>>(&text).unwrap(), map);
    assert_eq!(serde_json::to_string(&map.pin()).unwrap(), text);
}

/// In the order of its keys, and read in any order.
#[test]
fn an_ordered_map_is_written_and_read() {
    let map: BTreeMap<String, Vec<u32>> = (0..100).map(|n| (n.to_string(), vec![n; 3])).collect();
    let text = serde_json::to_string(&map).unwrap();
    let std: std::collections::BTreeMap<String, Vec<u32>> = serde_json::from_str(&text).unwrap();
    assert_eq!(std.len(), 100);
    assert_eq!(serde_json::to_string(&std).unwrap(), text);
    assert_eq!(serde_json::from_str::<BTreeMap<_, _>>(&text).unwrap(), map);
    assert_eq!(serde_json::to_string(&map.pin()).unwrap(), text);
    let read: BTreeMap<u32, u32> = serde_json::from_str(r#"{"2":1,"1":2,"2":3}"#).unwrap();
    assert!(read.pin().iter().eq([(&1, &2), (&2, &3)]));
    let error = serde_json::from_str::<BTreeMap<String, u32>>("[1]").unwrap_err();
    assert!(error.to_string().contains("a map"), "{error}");
}

#[test]
fn a_set_is_written_and_read() {
    let set: HashSet<u32> = (0..100).collect();
    let text = serde_json::to_string(&set).unwrap();
    assert_eq!(serde_json::from_str::<HashSet<u32>>(&text).unwrap(), set);
    let mut values: Vec<u32> = serde_json::from_str(&text).unwrap();
    values.sort_unstable();
    assert_eq!(values, (0..100).collect::<Vec<_>>());
    assert_eq!(serde_json::to_string(&set.pin()).unwrap(), text);
}

#[test]
fn maps_of_other_domains_are_written() {
    let map = HashMap::new_in(&Domain::new());
    map.pin().insert(1, 2);
    assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"1":2}"#);
    let nothing: HashMap<u32, u32> = HashMap::new();
    assert_eq!(serde_json::to_string(&nothing).unwrap(), "{}");
}

#[test]
fn of_equal_keys_the_last_stays_and_wrong_input_is_an_error() {
    let map: HashMap<String, u32> = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
    assert_eq!(
        map,
        HashMap::from([("a".to_owned(), 3), ("b".to_owned(), 2)])
    );
    let error = serde_json::from_str::<HashMap<String, u32>>("[1]").unwrap_err();
    assert!(error.to_string().contains("a map"), "{error}");
    let error = serde_json::from_str::<HashSet<u32>>("{}").unwrap_err();
    assert!(error.to_string().contains("a sequence"), "{error}");
    assert!(serde_json::from_str::<HashMap<String, u32>>(r#"{"a":1,"b":"#).is_err());
}
