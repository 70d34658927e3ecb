//! Functions that answer `-FI_ENOSYS`, by how many arguments they take: tables are full, because programs call what is
//! in them without looking.

use std::ffi::c_int;

macro_rules! refuse {
    ($($name:ident($($argument:ident),+);)+) => {
        $(pub(super) unsafe extern "C" fn $name<$($argument),+>($(_: $argument),+) -> c_int {
            -libc::ENOSYS
        })+
    };
}
refuse! {
    one(A);
    two(A, B);
    three(A, B, C);
    four(A, B, C, D);
    five(A, B, C, D, E);
}

/// The same of functions that answer a size.
pub(super) mod size {
    macro_rules! refuse {
        ($($name:ident($($argument:ident),+);)+) => {
            $(pub(in super::super) unsafe extern "C" fn $name<$($argument),+>($(_: $argument),+) -> isize {
                -(libc::ENOSYS as isize)
            })+
        };
    }
    refuse! {
        one(A);
        two(A, B);
        three(A, B, C);
        four(A, B, C, D);
        five(A, B, C, D, E);
        six(A, B, C, D, E, F);
        seven(A, B, C, D, E, F, G);
        eight(A, B, C, D, E, F, G, H);
        nine(A, B, C, D, E, F, G, H, I);
        ten(A, B, C, D, E, F, G, H, I, J);
        eleven(A, B, C, D, E, F, G, H, I, J, K);
        twelve(A, B, C, D, E, F, G, H, I, J, K, L);
        thirteen(A, B, C, D, E, F, G, H, I, J, K, L, M);
        fourteen(A, B, C, D, E, F, G, H, I, J, K, L, M, N);
        sixteen(A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P);
    }
}
