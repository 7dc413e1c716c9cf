//! Texts for people: the Debug output of each public type identifies the value, and each error says
//! what to do.

use std::{error::Error as _, io, sync::Arc};
use stillpoint_lru::{
    ChargeError, CreateError, DeleteError, Entry, Hierarchy, ListLru, PressureError, PressureWatch,
    TooManyShrinkers,
};

#[test]
fn handle_equality() {
    let (hierarchy, other) = (Hierarchy::new(), Hierarchy::default());
    let tenant = hierarchy.root().create().unwrap();
    assert_eq!(tenant.parent().as_ref(), Some(hierarchy.root()));
    assert_ne!(&tenant, hierarchy.root());
    assert_eq!(hierarchy, hierarchy.clone());
    assert_ne!(hierarchy, other);
}

#[test]
fn debug_of_values() {
    let entry = Arc::new(Entry::from(7));
    assert_eq!(format!("{entry:?}"), "Entry { value: 7, linked: false }");
    let lru = ListLru::default();
    assert!(lru.add(None, Arc::clone(&entry)));
    assert_eq!(format!("{entry:?}"), "Entry { value: 7, linked: true }");
    assert!(format!("{lru:?}").contains("count: 1"), "{lru:?}");
    // The list has one of the two references until `del` returns it.
    assert_eq!(Arc::strong_count(&entry), 2);
    drop(lru.del(&entry));
    assert_eq!(Arc::into_inner(entry).map(Entry::into_inner), Some(7));
    assert_eq!(Entry::<u32>::default().into_inner(), 0);
}

#[test]
fn debug_of_tenants() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let charge = tenant.charge(4321).unwrap();
    assert!(format!("{charge:?}").contains("bytes: 4321"), "{charge:?}");
    assert!(format!("{tenant:?}").contains("usage: 4321"), "{tenant:?}");
    assert!(
        format!("{hierarchy:?}").contains("tenants: 2"),
        "{hierarchy:?}"
    );
    let watch = format!("{:?}", PressureWatch::new("/run/pressure").target(65));
    assert!(
        watch.contains("/run/pressure") && watch.contains("target: Some(65)"),
        "{watch}"
    );
}

#[test]
fn error_messages() {
    let over = ChargeError::OverLimit {
        requested: 5,
        usage: 98,
        max: 100,
    };
    let system = || io::Error::from_raw_os_error(libc::EACCES);
    let refused = PressureError::Refused {
        path: "/run/pressure".into(),
        source: system(),
    };
    let errors: [(&dyn std::error::Error, &str); 14] = [
        (&over, "5|98|100|free something or raise the limit"),
        (
            &ChargeError::InSection,
            "inside a read-side critical section|charge outside of it",
        ),
        (
            &ChargeError::InShrinker,
            "a shrinker cannot reclaim for itself|charge outside of it",
        ),
        (&ChargeError::TooLarge, "at most"),
        (&ChargeError::NoTenant, "0 bytes|make a new one"),
        (
            &CreateError::ParentDeleted,
            "create the tenant below one that has not",
        ),
        (
            &CreateError::OutOfMemory,
            "free some, or delete other tenants",
        ),
        (&DeleteError::Root, "last handle"),
        (&DeleteError::HasChildren, "delete them first"),
        (&TooManyShrinkers, "1024"),
        (&PressureError::Payload, "base64"),
        (
            &PressureError::Kind("/etc".into()),
            "/etc|FIFO or socket|/dev/null",
        ),
        (&refused, "/run/pressure|Permission denied"),
        (
            &PressureError::Thread(system()),
            "no thread|Permission denied",
        ),
    ];
    for (error, says) in errors {
        let text = error.to_string();
        says.split('|')
            .for_each(|part| assert!(text.contains(part), "no '{part}' in: {text}"));
        assert_eq!(
            error.source().is_some(),
            text.contains("Permission denied"),
            "{text}"
        );
    }
    assert!(
        refused
            .source()
            .is_some_and(|source| source.is::<io::Error>())
    );
}
